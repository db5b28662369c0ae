"""The edges of an instance: its batches go to one other instance, or are divided among the copies of one.

A divided edge also brings the watermark to every copy, with rows or without; at the other end `merged` takes the
smallest of what the copies of a producer have promised. So no copy waits for one that hears nothing.

Both ends keep watermarks. One that a clock which was ahead has left behind comes down with the first batch whose
watermark is lower (`edgert.operators.state.wrong_clock`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from edgert.core.batch import NO_WATERMARK, Batch, Row, size_of
from edgert.operators.base.logic import Emission
from edgert.operators.state.wrong_clock import is_taken_back

Receiver = TypeVar("Receiver")
"""Stands at the far end of an edge: an instance."""


@dataclass(slots=True)
class Target(Generic[Receiver]):
    """The far end of an edge: an instance, the number of its input, and which of those that feed that this one is."""

    instance: Receiver
    source: int
    producer: int = 0
    rows: int = field(default=0, compare=False)
    """Given there since the start of the process."""
    size: int = field(default=0, compare=False)
    """Estimated resident bytes of the rows."""

    @property
    def instances(self) -> tuple[Receiver, ...]:
        """The instances that the edge reaches."""
        return (self.instance,)

    @property
    def targets(self) -> Sequence[Target[Receiver]]:
        """The one target, as a `Spread` has several."""
        return (self,)

    def give(self, batch: Batch, out: TurnOutput[Receiver]) -> None:
        """Adds to `out` what goes there."""
        self.rows += len(batch.rows)
        self.size += batch.size
        out.append((self, batch))

    def settle(self, out: TurnOutput[Receiver]) -> None:
        """The turn ends."""


TurnOutput = list[tuple[Target[Receiver], Batch]]


@dataclass(slots=True, eq=False)
class Spread(Generic[Receiver]):
    """The far end of an edge to several copies. It belongs to the instance whose output it is."""

    targets: Sequence[Target[Receiver]]
    divide: Callable[[Sequence[Row]], Sequence[list[Row]]] | None
    """Rows to those of each copy; None: whole batches in turn."""
    near: Sequence[int] = ()
    """Numbers of the targets among which whole batches go; unsaid means all."""
    watermark: float = NO_WATERMARK
    """The greatest that a batch has carried."""
    _told: list[float] = None  # type: ignore[assignment]
    """The watermark given to each copy, by copy."""
    _arrival: float = 0.0
    _next: int = 0

    def __post_init__(self) -> None:
        self._told = [NO_WATERMARK] * len(self.targets)
        self.near = self.near or range(len(self.targets))

    @property
    def instances(self) -> tuple[Receiver, ...]:
        """The instances that the edge reaches."""
        return tuple(target.instance for target in self.targets)

    def give(self, batch: Batch, out: TurnOutput[Receiver]) -> None:
        """Adds to `out` what goes where. What is only a watermark waits for the end of the turn."""
        if is_taken_back(self.watermark, batch.watermark):
            self.watermark = NO_WATERMARK
            self._told = [NO_WATERMARK] * len(self._told)
        self.watermark = max(self.watermark, batch.watermark)
        self._arrival = batch.arrival
        rows = batch.rows
        if not rows:
            return
        if self.divide is None:
            self._put(self.near[self._next % len(self.near)], batch, out)
            self._next += 1
            return
        for number, part in enumerate(self.divide(rows)):
            if part:
                size = batch.size * len(part) // len(rows)
                self._put(number, Batch(part, batch.arrival, batch.watermark, size), out)

    def _put(self, number: int, batch: Batch, out: TurnOutput[Receiver]) -> None:
        self.targets[number].give(batch, out)
        self._told[number] = max(self._told[number], batch.watermark)

    def settle(self, out: TurnOutput[Receiver]) -> None:
        """The turn ends: copies that do not know the watermark yet are told, once however many batches there were."""
        watermark = self.watermark
        for number, told in enumerate(self._told):
            if told < watermark:
                self._put(number, Batch([], self._arrival, watermark), out)


class InputWatermarks:
    """The watermarks of those that feed one input."""

    __slots__ = ("_by_producer", "_merged")

    def __init__(self, producers: int) -> None:
        self._by_producer = [NO_WATERMARK] * producers
        self._merged = NO_WATERMARK

    def merged(self, batch: Batch, producer: int) -> Batch | None:
        """The batch with what all of them promise; None if it has no rows and that is nothing new."""
        watermarks = self._by_producer
        if is_taken_back(watermarks[producer], batch.watermark):
            watermarks[producer] = self._merged = NO_WATERMARK
        if batch.watermark > watermarks[producer]:
            watermarks[producer] = batch.watermark
        watermark = min(watermarks)
        if not batch.rows and watermark <= self._merged:
            return None
        self._merged = watermark
        return Batch(batch.rows, batch.arrival, watermark, batch.size)


@dataclass(slots=True, eq=False)
class Edges(Generic[Receiver]):
    """The incoming and outgoing edges of one instance."""

    outputs: dict[int, list[Target[Receiver] | Spread[Receiver]]] = field(default_factory=dict)
    """Targets by port."""
    watermarks: dict[int, InputWatermarks] = field(default_factory=dict)
    """Watermarks promised by the copies that feed an input, by input."""
    away: bool = False
    """Some of its outputs are in other processes."""
    beside: bool = False
    """True if an instance that feeds this one also feeds others, or sends messages itself."""

    def give(self, emission: Emission, seed: int, out: TurnOutput[Receiver]) -> None:
        """Adds to `out` what goes where of one emission. `seed`: which rows are looked at for the size of a batch that
        has none; differs from call to call."""
        port, batch = emission
        targets = self.outputs.get(port)
        if not targets:
            return
        if not batch.size:
            batch.size = size_of(batch.rows, seed)  # or it would count for nothing in a budget
        for target in targets:
            target.give(batch, out)

    def settle(self, out: TurnOutput[Receiver]) -> None:
        """After all emissions of a turn."""
        for targets in self.outputs.values():
            for target in targets:
                target.settle(out)

    def reaches(self) -> Iterator[Receiver]:
        """The instances to which something goes from here."""
        for targets in self.outputs.values():
            for target in targets:
                yield from target.instances

    def rows(self) -> int:
        """Rows given since the start of the process, for each edge."""
        return sum([target.rows for ends in self.outputs.values() for end in ends for target in end.targets])

    def width(self) -> tuple[int, int]:
        """(consumers, instances that the edges reach: a consumer may have several copies)."""
        ends = [end for ends in self.outputs.values() for end in ends]
        return len(ends), sum([len(end.targets) for end in ends])
