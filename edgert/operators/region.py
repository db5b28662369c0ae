"""Several operators as one instance: rows come to the first, and go from one to the next at once.

    readings ─┬─ classify ───────────── classes        one instance, one queue, one turn for all of it
              ├─ regress ──┬─ beside ── errors
              └─ average ──┘

A region has one entry: all that its parts read, but for the first, comes from within. So rows that leave it never come
back, and the graph of instances has no cycle.

The parts keep their state, counters and names: a checkpoint made without fusion is good with it, and the other way
round. What waited in front of a part that is not the first then comes by an input of its own: `entrances`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from edgert.core.batch import Batch, RawBatch
from edgert.operators.guard import Guard
from edgert.operators.logic import Emission, Logic, Now

Waiting = list[tuple[int, Batch | RawBatch]]
"""Batches for a part, each with the number of the input by which it comes."""


class Edge(NamedTuple):
    """From one part to a later one."""

    part: int
    port: int
    to: int
    input: int


class Region(Logic):
    """`parts` stand in an order in which each comes after all that feed it. `exits`: what leaves, as (part, port); the
    first leaves the region by port 0, the second by port 1, ... `inputs` is how many inputs the first part has."""

    def __init__(
        self, parts: Sequence[Logic], edges: Iterable[Edge], exits: Sequence[tuple[int, int]] = (), inputs: int = 1
    ) -> None:
        super().__init__()
        self.parts = tuple(parts)
        self.drops = self.parts[0].drops
        self.guards = tuple(map(Guard, self.parts))
        """By part."""
        self.took = [0] * len(self.parts)
        """Rows (for a source: messages) that each part has taken."""
        self.gave = [0] * len(self.parts)
        """Rows that each part gave to others, or out."""
        self.held: dict[int, Waiting] = {}
        """By part: what waits for a row that is to be tried again, and the input of the part by which it comes."""
        self._to: list[dict[int, list[tuple[int, int]]]] = [{} for _ in self.parts]
        """By part and port: whom that feeds, and by which of its inputs."""
        self._exit: list[dict[int, int]] = [{} for _ in self.parts]
        """By part and port: the region's own port."""
        wide = [max(1, inputs), *([1] * (len(self.parts) - 1))]
        for part, port, to, at in edges:
            self._to[part].setdefault(port, []).append((to, at))
            wide[to] = max(wide[to], at + 1)
        for number, (part, port) in enumerate(exits):
            self._exit[part][port] = number
        self._ends = [part for part in range(len(self.parts)) if not self._to[part] and not self._exit[part]]
        self._entrances = [range(sum(wide[:part]), sum(wide[: part + 1])) for part in range(len(self.parts))]

    def entrances(self, part: int) -> range:
        """The numbers of the region's inputs by which rows come to `part`: one for each input of that."""
        return self._entrances[part]

    @property
    def left(self) -> int:
        """Rows that have come to parts behind which nothing is."""
        took = self.took
        return sum([took[part] for part in self._ends])

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        part = 0
        if source not in self._entrances[0]:
            part = next(part for part, numbers in enumerate(self._entrances) if source in numbers)
        return self.through({part: [(source - self._entrances[part].start, batch)]}, now)

    def through(self, waiting: dict[int, Waiting], now: Now) -> list[Emission]:
        """What waits in front of parts, through them and all that follow; returns what leaves the region."""
        out: list[Emission] = []
        for part in range(min(waiting, default=0), len(self.parts)):
            if part in waiting:
                for source, batch in waiting.pop(part):
                    if emissions := self._turn(part, batch, source, now):
                        self.pass_on(part, emissions, waiting, out)
        return out

    def pass_on(
        self, part: int, emissions: Iterable[Emission], waiting: dict[int, Waiting], out: list[Emission]
    ) -> None:
        """What `part` gives: into `waiting`, for the parts that it feeds, and `out` of the region."""
        to, leaves = self._to[part], self._exit[part]
        for port, batch in emissions:
            for other, source in to.get(port, ()):
                if other in waiting:
                    waiting[other].append((source, batch))
                else:
                    waiting[other] = [(source, batch)]
            if port in leaves:
                out.append(Emission(leaves[port], batch))

    def _turn(self, part: int, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        if self.held and part in self.held:  # nothing overtakes
            self.held[part].append((source, batch))
            return ()
        guard = self.guards[part]
        self.took[part] += len(batch)
        emissions = guard.process(batch, source, now)
        if guard.held:
            self.hold(part, source)
        if guard.logic.messages:
            self.take_messages(guard.logic)
        for emission in emissions:
            self.gave[part] += len(emission.batch.rows)
        return emissions

    def hold(self, part: int, source: int) -> None:
        """What the guard of `part` could not give to it yet comes to it anew."""
        guard = self.guards[part]
        held, guard.held = guard.held, []
        self.took[part] -= sum(map(len, held))
        self.held[part] = [(source, batch) for batch in held]

    def take_held(self) -> Waiting:
        """What is to come again before anything else, and by which input of the region. What is nearest to the end is
        oldest."""
        held, self.held = self.held, {}
        return [
            (self._entrances[part].start + source, batch)
            for part in sorted(held, reverse=True)
            for source, batch in held[part]
        ]

    def take_messages(self, logic: Logic) -> None:
        """The messages of a part are those of the region."""
        if logic.messages:
            self.messages += logic.messages
            logic.messages = []

    def flush(self, now: Now) -> Sequence[Emission]:
        out: list[Emission] = []
        for part, logic in enumerate(self.parts):
            emissions = self.guards[part].flush(now)
            self.take_messages(logic)
            self.gave[part] += sum([len(emission.batch) for emission in emissions])
            waiting: dict[int, Waiting] = {}
            self.pass_on(part, emissions, waiting, out)
            out += self.through(waiting, now)
        return out
