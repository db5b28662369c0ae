"""TOML as text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date, time
from typing import Any, Final

from edgert.core.errors import show

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(document: Mapping[str, Any]) -> str:
    """The plain document as TOML text: top-level values, then one table per section and per operator. Raises
    `ValueError` for a value that TOML does not have."""
    lines = [f"{_key(k)} = {literal(v)}" for k, v in document.items() if not isinstance(v, Mapping)]
    for key, value in document.items():
        if isinstance(value, Mapping):
            _table(lines, _key(key), value)
    return "\n".join(lines).lstrip("\n") + "\n"


def _table(lines: list[str], path: str, table: Mapping[str, Any]) -> None:
    """`operators` holds tables only and gets no header of its own; what stands inside an operator is written inline."""
    inner = {k: v for k, v in table.items() if isinstance(v, Mapping)}
    if table and len(inner) == len(table) and "." not in path:
        for key, value in inner.items():
            _table(lines, f"{path}.{_key(key)}", value)
        return
    lines += ["", f"[{path}]", *(f"{_key(k)} = {literal(v)}" for k, v in table.items())]


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else literal(key)


def literal(value: Any) -> str:
    """The value as TOML writes it. Raises `ValueError`."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():  # JSON's escapes are TOML's, except that TOML wants DEL escaped, too, and no surrogate pairs
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{', '.join(map(literal, value))}]"
        case Mapping():
            return "{ " + ", ".join(f"{_key(k)} = {literal(v)}" for k, v in value.items()) + " }" if value else "{}"
        case date() | time():
            return value.isoformat()
    raise ValueError(f"expected a string, number, boolean, date, list or table, got {show(value)}")
