"""Counters of an instance since the start of the process: its work, and the fate of its input and its messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from edgert.core.batch import RawBatch
from edgert.runtime.instance.givers import Givers
from edgert.runtime.instance.latency import Latency

NOT_SENT: Final = "not sent"
"""The reason under which messages are counted that the connection did not take, or the broker refused."""


@dataclass(slots=True)
class Counters:
    """Since the start of the process."""

    rows_in: int = 0
    rows_out: int = 0
    turns: int = 0
    busy_s: float = 0.0
    """Time spent computing (T_C of EdgeWise, section 7.2), seconds."""
    queued_s: float = 0.0
    """How long the oldest batch of each turn stood behind others in the queue (T_Q), summed over the turns."""
    scheduling_s: float = 0.0
    """How long it stood at the head while the instance waited for a worker (T_S), summed over the turns."""
    idle_s: float = 0.0
    """Time without anything queued or running: utilisation is the part of time that is not idle. `Instance.idle_at`
    adds what is under way."""
    latency: Latency = field(default_factory=Latency)
    """Latency of rows that leave the flow here, from their arrival."""
    unshared_s: float = 0.0
    """Time of turns that a region has not shared out among its stages yet."""
    uncounted: int = 0
    """Turns that could not be counted, by a fault of our own."""


@dataclass(slots=True, eq=False)
class DeliveryCounts:
    """Input that was not fed to an instance or not processed, and messages of it that were not delivered."""

    shed: int = 0
    """Rows dropped from the queue because it was over its budget."""
    no_room: int = 0
    """Messages of QoS 0 that it was not fed, since checkpoints of its flow could not be written."""
    unsent: Counter[int] = field(default_factory=Counter)
    """Messages that the connection did not take, or the broker refused, by the stage (from 0) that gave them."""
    unacknowledged: Counter[int] = field(default_factory=Counter)
    """Messages that the broker had not acknowledged when the gateway ended, by the same: they may have come."""
    newest_unsent: dict[int, str] = field(default_factory=dict)
    """The topic of the message that the broker refused last, and why, by the same."""
    givers: Givers | None = None
    """Tells the stages apart that gave messages; made for the first message that is lost."""
    kept: list[RawBatch] = field(default_factory=list)
    """Input that is owed an acknowledgement, fed since the last checkpoint."""

    def not_taken(self, stage: int) -> Counter[str]:
        """Messages of a stage (and those to the first one) that did not arrive, or whose fate is unknown, by reason."""
        fed = {} if stage else {"no checkpoint, QoS 0": self.no_room}
        return Counter({NOT_SENT: self.unsent[stage], "not acknowledged": self.unacknowledged[stage], **fed})
