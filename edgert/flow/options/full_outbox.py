"""`[outbox]` of a flow: what becomes of its results when the gateway's outbox has no room for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from edgert.core.errors import Problem, show

WhenFull = Literal["shed-oldest", "stop-acknowledging"]
WHEN_FULL: Final[tuple[WhenFull, ...]] = ("shed-oldest", "stop-acknowledging")
DEFAULT: Final[WhenFull] = "shed-oldest"
"""The sensors are never stopped, the newest results are worth most, and the broker that would have to keep the data
stands on the same card more often than not."""
KEYS: Final = ("full",)


def parse(table: Any) -> tuple[WhenFull, list[Problem]]:
    """The choice that a document's table says, and what is wrong with it."""
    if not isinstance(table, Mapping):
        return DEFAULT, [Problem("outbox", "a table", show(table))]
    given = table.get("full", DEFAULT)
    for choice in WHEN_FULL:
        if given == choice:
            return choice, []
    return DEFAULT, [Problem("outbox.full", f"one of {', '.join(WHEN_FULL)}", show(given))]


def of_document(document: Mapping[str, Any]) -> WhenFull:
    """The choice of a document that was accepted."""
    return parse(document.get("outbox", {}))[0]
