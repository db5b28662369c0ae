"""Records of a flow in the database of a gateway."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from edgert.core.checkpoint.position import Position
from edgert.flow.plan import Assignment, Location


@dataclass(frozen=True, slots=True)
class StoredFlow:
    """A flow as the database knows it."""

    name: str
    document: Mapping[str, Any]
    version: int
    origin: str
    removed: bool
    epoch: int
    position: Position
    plan: int = 0
    """Number of its plan: how often its assignment was changed."""
    assignment: Assignment = field(default_factory=dict)
    """The part of the assignment that a person or an agent chose; an operator that is not in it runs where the gateway
    puts it."""


COLUMNS: Final = "name, document, version, origin, removed, epoch, position, missing, links, plan, assignment"
"""Columns of a flow's row, as `stored_flow` takes and `row_of` gives them."""


def stored_flow(
    name: str, document: str, version: int, origin: str, removed: int, epoch: int, position: int, missing: bytes,
    links: bytes, plan: int, assignment: bytes,
) -> StoredFlow:  # fmt: skip
    """The flow of a row. If the row is damaged in part, the document says so, and no flow starts from it."""
    located: dict[str, Location] = {}
    at = Position(position)
    try:
        plain = msgspec.json.decode(document, type=dict[str, Any])
        at = position_of(position, missing, links)
        found = msgspec.msgpack.decode(assignment, type=dict[str, tuple[str, int]])
        located = {operator: Location(*location) for operator, location in found.items()}
    except msgspec.MsgspecError as error:
        plain = {"damaged": str(error)}
    return StoredFlow(name, plain, version, origin, bool(removed), epoch, at, plan, located)


NO_LINKS: Final = msgspec.msgpack.encode({})


def position_of(index: int, missing: bytes, links: bytes) -> Position:
    """Returns the position that three columns hold. Raises `msgspec.MsgspecError` where they are damaged."""
    holes = frozenset(msgspec.msgpack.decode(missing, type=list[int]))
    taken = msgspec.msgpack.decode(links, type=dict[str, tuple[int, int]])
    return Position(index, holes, taken)


def columns_of(position: Position) -> tuple[int, bytes, bytes]:
    """Returns the columns that `position_of` takes."""
    return position.index, msgspec.msgpack.encode(sorted(position.missing)), msgspec.msgpack.encode(position.links)


def row_of(flow: StoredFlow) -> tuple[Any, ...]:
    """Returns the row that `stored_flow` takes."""
    document = json.dumps(flow.document)
    assignment = msgspec.msgpack.encode(dict(flow.assignment))
    return (
        flow.name, document, flow.version, flow.origin, int(flow.removed), flow.epoch, *columns_of(flow.position),
        flow.plan, assignment,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class FlowResults:
    """Results of a flow that leave before the checkpoint that will cover them."""

    flow: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    """Contributions, as lists in the order of `columns`."""


@dataclass(frozen=True, slots=True)
class StateExtent:
    """The extent of a checkpoint whose state is still stored, so that a flow can go back to it."""

    number: int
    """Number of the last piece of state that belongs to it; 0: none does."""
    position: Position
    epoch: int
    cut: Mapping[int, int]
    """Stream of the epoch → the last number given in it."""


@dataclass(frozen=True, slots=True)
class Spill:
    """Input of a stuck flow on its way to the database: what was fed since its last checkpoint or spill."""

    flow: str
    position: Position
    """The input that it covers."""
    queue: bytes
    """Packed as a flow's queues are."""
    bytes: int
    messages: int


@dataclass(frozen=True, slots=True)
class Spilled:
    """Input that was spilled since a flow's last checkpoint."""

    position: Position
    queues: Sequence[bytes]
    """Oldest first."""
    lost: int
    """Messages for which there was no room, and of which no gap says so yet."""
