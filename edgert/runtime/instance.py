"""One physical copy of an operator: its logic, its queue, where its batches go, and what it has done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from edgert.core.batch import Batch
from edgert.operators.line import Line, PartFailed
from edgert.operators.logic import Emission, Logic, Message, Now
from edgert.runtime.latency import Latency
from edgert.runtime.queue import Entry, Queue
from edgert.runtime.targets import Marks, Outgoing, Spread, Target


@dataclass(slots=True)
class Counters:
    """Since the start of the process."""

    rows_in: int = 0
    rows_out: int = 0
    turns: int = 0
    busy_s: float = 0.0
    """Time spent computing (T_C of EdgeWise, section 7.2), seconds."""
    queued_s: float = 0.0
    """How long the oldest batch of each turn stood in the queue while the instance ran (T_Q), summed over the turns."""
    scheduling_s: float = 0.0
    """How long it stood there while the instance waited for a worker (T_S), summed over the turns."""
    idle_s: float = 0.0
    """Time without anything queued or running: utilisation is the part of time that is not idle. `Instance.idle_at`
    adds what is under way."""
    failures: int = 0
    """Turns in which the logic raised: its batch was dropped and counted."""


@dataclass(slots=True, eq=False)
class Instance:
    """Owned by a pool, which guards everything here but the logic: that belongs to the worker whose turn it is."""

    name: str
    """As planned: an operator's name, or the names of a fused chain joined by `+`."""
    operators: tuple[str, ...]
    kind: str
    logic: Logic
    queue: Queue
    outputs: dict[int, list[Target | Spread]] = field(default_factory=dict)
    """Targets by port."""
    marks: dict[int, Marks] = field(default_factory=dict)
    """By input, where several copies of an instance feed it: what they have promised."""
    number: int = -1
    """Given by the pool."""
    counters: Counters = field(default_factory=Counters)
    shed: int = 0
    """Rows dropped from the queue because it was over its budget."""
    unsent: int = 0
    """Messages that the connection did not take."""
    running: bool = False
    fast_turns: int = 0
    """Turns in a row that were not slow."""
    started: float = 0.0
    """When the turn under way, or the last one, began, monotonic seconds."""
    freed: float = 0.0
    """When the last turn ended, monotonic seconds."""
    latency: Latency = field(default_factory=Latency)
    """Of rows that leave the flow here, from their arrival."""
    profiled: tuple[int, float, int] = (0, 0.0, 0)
    """Rows in, time spent and rows out when the pool last told its policy."""

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or running."""
        return not self.queue.entries and not self.running

    def idle_at(self, now: float) -> float:
        """`Counters.idle_s` as of `now`."""
        return self.counters.idle_s + (max(0.0, now - self.freed) if self.idle else 0.0)

    def run(self, entries: Sequence[Entry], now: Now) -> Turn:
        """Processes what was taken. An error of the logic costs its batch, never the worker."""
        out: Outgoing = []
        failed: BaseException | None = None
        left: list[tuple[float, int]] = []
        outputs, marks = self.outputs, self.marks
        line = self.logic if isinstance(self.logic, Line) and not outputs else None
        for source, batch, _, _, producer in entries:
            if marks and source in marks:
                assert isinstance(batch, Batch)
                merged = marks[source].merged(batch, producer)
                if merged is None:
                    continue
                batch = merged
            before = line.took[-1] if line else 0
            try:
                for emission in self.logic.process(batch, source, now):
                    self.counters.rows_out += len(emission.batch)
                    if outputs:
                        self.give(emission, out)
            except PartFailed as error:
                failed = error.__cause__
                self.counters.failures += 1
                error.part.drops["operator failed"] += error.rows
            except Exception as error:  # noqa: BLE001 - whatever an operator raises must not end its worker
                failed = error
                self.counters.failures += 1
                self.logic.drops["operator failed"] += len(batch)
            if not outputs and (rows := line.took[-1] - before if line else len(batch)):
                left.append((batch.arrival, rows))
        if outputs:
            self.settle(out)
        return Turn(out, self.take_messages(), failed, left=left)

    def take_messages(self) -> list[Message]:
        """What is to be sent and was not taken yet."""
        messages = self.logic.messages
        if messages:
            self.logic.messages = []
        return messages

    def give(self, emission: Emission, out: Outgoing) -> None:
        """Adds to `out` what goes where of one emission."""
        for target in self.outputs.get(emission.port, ()):
            target.give(emission.batch, out)

    def settle(self, out: Outgoing) -> None:
        """After all emissions of a turn."""
        for targets in self.outputs.values():
            for target in targets:
                target.settle(out)

    def reaches(self) -> Iterator[Instance]:
        """The instances to which something goes from here."""
        for targets in self.outputs.values():
            for target in targets:
                yield from target.instances

    def finish(self, now: Now) -> Turn:
        """Lets the logic give out what it still holds."""
        try:
            emissions = self.logic.flush(now)
        except Exception as error:  # noqa: BLE001 - as in `run`: the flow must still be able to end
            self.counters.failures += 1
            self.logic.drops["operator failed"] += 1
            return Turn([], [], error)
        out: Outgoing = []
        for emission in emissions:
            self.give(emission, out)
        self.settle(out)
        return Turn(out, self.take_messages())


@dataclass(slots=True)
class Turn:
    """What one turn of an instance gave."""

    out: Outgoing
    messages: list[Message]
    failed: BaseException | None = None
    left: list[tuple[float, int]] = field(default_factory=list)
    """(arrival, rows) of what reached the end of the flow."""
    ended: float = 0.0
    """Monotonic seconds; set by the pool."""
