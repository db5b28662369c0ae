"""A capture: the state and queues that one pause took out of a flow; and the size of the flow's stored state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgert.core.batch import Row
from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.runtime.checkpoint.departures import Departure
from edgert.runtime.instance.queue import Entry

COMPACT_BYTES = 262_144
"""Deltas are merged into a snapshot when they outgrow this and three times the last snapshot. So much more is read at a
restart (20 ms); merging 1,000 keys with every fifth checkpoint would write a third more to the card."""


@dataclass(slots=True)
class Captured:
    """State and queues that one pause took out of a flow; kept until they are committed."""

    position: Position
    deltas: list[dict[str, Any]]
    """Deltas by instance; more than one if an earlier pause could not be completed."""
    rows: list[Row]
    queues: dict[str, list[Entry]]
    whole: bool = False
    """The deltas say everything."""
    departures: Sequence[Departure] = ()


@dataclass(slots=True)
class StoredSize:
    """Bytes that the database holds of a flow: the snapshot of its state, the deltas since, and its queues."""

    snapshot: int = 0
    deltas: int = 0
    queue: int = 0
    compact_bytes: int = COMPACT_BYTES

    @property
    def total(self) -> int:
        """Bytes of the state."""
        return self.snapshot + self.deltas

    def read(self, blobs: Sequence[bytes], queue: bytes) -> None:
        """The database holds these: the snapshot and deltas, and queues."""
        self.queue = len(queue)
        self.snapshot, self.deltas = sum(map(len, blobs[:1])), sum(map(len, blobs[1:]))

    def committed(self, form: Checkpoint) -> None:
        """The database holds it, too."""
        self.queue = len(form.queue)
        added = sum(map(len, form.deltas))
        if form.whole:
            self.snapshot, self.deltas = added, 0
        else:
            self.deltas += added

    def compacted(self, merged: int, snapshot: int) -> None:
        """The database has a snapshot of so many bytes in the place of `merged`, which was all that it had then."""
        self.deltas, self.snapshot = self.total - merged, snapshot

    def wants_compaction(self) -> bool:
        return self.deltas > max(self.compact_bytes, 3 * self.snapshot)
