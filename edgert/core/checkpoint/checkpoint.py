"""A checkpoint of one flow, packed: made by the flow's run, written by the database in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgert.core.checkpoint.position import Position
from edgert.core.results.results import Drop


@dataclass(slots=True)
class Checkpoint:
    """The content of one checkpoint of one flow; also of the last one, when the flow is replaced or removed."""

    flow: str
    position: Position
    """Input up to here is in it."""
    deltas: Sequence[bytes]
    """Packed state, oldest first."""
    queue: bytes
    """Packed queues; empty when nothing waits."""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    """Contributions for the outbox, as lists in the order of `columns`."""
    gap: str = ""
    """The loss after these results, in words."""
    drops: Sequence[Drop] = ()
    """Rows that the flow has dropped and that no checkpoint before has said."""
    whole: bool = False
    """The deltas are all of the state: what was stored of it before is deleted."""
    links: Sequence[tuple[str, int, bytes]] = ()
    """(gateway, rows, payload): batches for other gateways."""
    captures: int = 0
    """Number of captures in the checkpoint, for the run that made it."""
