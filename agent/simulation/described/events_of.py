"""The `[[events]]` of a description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from agent.simulation.described.events import COORDINATOR, EventKind, FleetEvent
from agent.simulation.described.tables import number, only, tables
from agent.simulation.described.ways import DescriptionError

KINDS: Final[tuple[EventKind, ...]] = get_args(EventKind)
MOST: Final = {"kill": 1, "card": 1, "restart": 1, "cut": 2, "heal": 2, "clock": 1}
"""Boards of an event."""
KEYS: Final[Mapping[EventKind, set[str]]] = {
    "kill": {"for_s"}, "card": {"for_s"}, "restart": set(), "cut": {"for_s", "one_way"}, "heal": set(),
    "clock": {"by_s"},
}  # fmt: skip


def events_of(document: Mapping[str, Any], boards: Sequence[str]) -> tuple[FleetEvent, ...]:
    """The events in the order of their times. Raises `DescriptionError` naming the entry."""
    found = [_event(table, f"events[{n}]", boards) for n, table in enumerate(tables(document, "events"))]
    return tuple(sorted(found, key=lambda event: event.at_s))


def _event(table: Mapping[str, Any], where: str, boards: Sequence[str]) -> FleetEvent:
    kinds = [kind for kind in KINDS if kind in table]
    if len(kinds) != 1:
        raise DescriptionError(f"{where}: expected one of {', '.join(KINDS)}, got {', '.join(table) or 'nothing'}")
    (kind,) = kinds
    only(table, {"at_s", kind, *KEYS[kind]}, where)
    if "at_s" not in table:
        raise DescriptionError(f"{where}.at_s: expected seconds since the flow was deployed, got none")
    one_way, by_s = table.get("one_way", False), table.get("by_s", 0.0)
    if not isinstance(one_way, bool):
        raise DescriptionError(f"{where}.one_way: expected true or false, got {one_way!r}")
    if isinstance(by_s, bool) or not isinstance(by_s, int | float) or not abs(by_s) < 1e9:
        raise DescriptionError(f"{where}.by_s: expected seconds, got {by_s!r}")
    for_s = number(table, "for_s", where) if "for_s" in table else None
    named = _boards(table[kind], kind, f"{where}.{kind}", boards)
    return FleetEvent(number(table, "at_s", where), kind, named, for_s, one_way, float(by_s))


def _boards(value: Any, kind: EventKind, where: str, boards: Sequence[str]) -> tuple[str, ...]:
    named = value if isinstance(value, list) else [value]
    known = [*boards, COORDINATOR]
    wrong = not 1 <= len(named) <= MOST[kind] or (len(named) == 2 and named[0] == named[1])
    if wrong or not all(name in known for name in named):
        wanted = "a board" if MOST[kind] == 1 else "a board, or two different ones"
        raise DescriptionError(f"{where}: expected {wanted} of {', '.join(known)}, got {value!r}")
    return tuple(named)
