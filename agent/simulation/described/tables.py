"""Entries of a TOML document, checked: each error names the entry, what was expected, and what was got."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.simulation.described.ways import DescriptionError


def tables(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The tables of `[[key]]`; none where it is absent. Raises `DescriptionError`; so do the others."""
    found = document.get(key, [])
    if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
        raise DescriptionError(f"expected [[{key}]] tables, got {found!r}")
    return found


def number(table: Mapping[str, Any], key: str, where: str, default: float = 0.0) -> float:
    """A number that is not negative."""
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise DescriptionError(f"{where}.{key}: expected a number, not negative, got {value!r}")
    return float(value)


def only(table: Mapping[str, Any], known: set[str], where: str) -> None:
    """Checks that the table has no other keys than the known ones."""
    if unknown := table.keys() - known:
        raise DescriptionError(f"{where}: expected {', '.join(sorted(known))}, got {', '.join(sorted(unknown))}")
