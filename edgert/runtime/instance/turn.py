"""What one turn of an instance gave, and what all of them come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgert.operators.logic import PlainMessage
from edgert.runtime.instance.edges import Outgoing
from edgert.runtime.instance.queue import Entry


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


class Turn:
    """What one turn of an instance gave. (Of what most turns lack, the class has the value.)"""

    messages: Sequence[PlainMessage] = ()
    failed: BaseException | None = None
    """The last error of an operator, for the log."""
    failing: str = ""
    """The operator that raised it."""
    back: Sequence[Entry] = ()
    """What is to be taken again before anything else, `wait_s` seconds later: first a row that failed, or what was not
    tried in this turn."""
    wait_s: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    """Monotonic seconds; set by the pool, as what follows."""
    put: float = 0.0
    """When the oldest batch of it came to the queue, monotonic seconds."""
    rows: int = 0
    """Those of `Instance.rows_of`."""

    def __init__(self) -> None:
        self.out: Outgoing = []
        self.left: list[tuple[float, int]] = []
        """(arrival, rows) of what reached the end of the flow."""
