"""Counts of what came from the sensors' broker."""

from __future__ import annotations

from dataclasses import dataclass

from edgert.core.batch import RawBatch


@dataclass(slots=True)
class InboxCounters:
    """Messages since the start of the process."""

    messages: int = 0
    bytes: int = 0
    unrouted: int = 0
    """Messages that no flow takes."""
    redelivered: int = 0
    """Redeliveries that every flow had already: skipped."""
    ambiguous: int = 0
    """Messages dropped as redeliveries although they might be new: they are equal to a message whose PUBACK may have
    been sent."""
    perhaps_repeated: int = 0
    """Redeliveries under packet ids of which the table was damaged, or that it does not know since it was emptied:
    taken as new, though they may have been before."""
    without_dup: int = 0
    """Redeliveries that the broker did not mark as such, since the start."""
    untaken: int = 0
    """Messages of reads that failed: see `take_back`."""
    untaken_qos_0: int = 0
    """Untaken messages of QoS 0, which no broker sends again."""
    retained_ignored: int = 0
    left: int = 0
    """Messages of QoS 0 that came while the gateway ended: no broker keeps them."""

    def leave_out(self, batch: RawBatch) -> None:
        """Subtracts a batch that no flow takes, and none misses, from the counts."""
        self.messages -= len(batch)
        self.bytes -= sum(map(len, batch.payloads))
