"""The result of one turn of an instance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic

from edgert.operators.base.logic import PlainMessage
from edgert.runtime.instance.edges import Receiver, TurnOutput
from edgert.runtime.instance.queue import Entry


class Turn(Generic[Receiver]):
    """The result of one turn of an instance. (A value that most turns lack is a default of the class.)"""

    messages: Sequence[PlainMessage] = ()
    failed: BaseException | None = None
    """The last error of an operator, for the log."""
    failing: str = ""
    """The operator that raised it."""
    back: Sequence[Entry] = ()
    """Entries to take again before all others, `wait_s` seconds later: first a row that failed, or rows not tried in
    this turn."""
    wait_s: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    """Monotonic seconds; set by the pool, as what follows."""
    put: float = 0.0
    """When the oldest batch of it came to the queue, monotonic seconds."""
    rows: int = 0
    """The rows that `Instance.rows_of` counts."""

    def __init__(self) -> None:
        self.out: TurnOutput[Receiver] = []
        self.left: list[tuple[float, int]] = []
        """(arrival, rows) of what reached the end of the flow."""
