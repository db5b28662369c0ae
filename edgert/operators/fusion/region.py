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

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from edgert.core.batch import Batch, RawBatch
from edgert.operators.base.error_boundary import Guard, Process
from edgert.operators.base.logic import Emission, Logic, Now

SAMPLED_S: Final = 0.5
"""About so often a turn's parts are timed. Ten times a second cost a twentieth of all CPU where turns are as rare."""
KEPT: Final = 0.995
"""Weight of a sample when the next one comes: some hundred seconds are looked at together."""
GOLDEN: Final = 0.618
"""Part of `SAMPLED_S` by which the moments wander, so that they keep no step with regular events."""
PartInput = list[tuple[int, Batch | RawBatch]]
"""Batches for a part, each with the number of the input by which it comes."""


class Step(NamedTuple):
    """The values of a part that each turn needs."""

    part: int
    guard: Guard
    logic: Logic
    process: Process
    to: Mapping[int, Sequence[tuple[int, int]]]
    """By port: whom that feeds, and by which of its inputs."""
    exit: Mapping[int, int]
    """By port: the region's own port."""


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
        self.took = [0] * len(self.parts)
        """Rows (for a source: messages) that each part has taken."""
        self.gave = [0] * len(self.parts)
        """Rows that each part gave to others, or out."""
        self.held: dict[int, PartInput] = {}
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
        self.sampled_s = SAMPLED_S
        self.clock: Callable[[], float] | None = None
        """Clock by which its parts are timed, seconds; None: they are not timed."""
        self.sample: list[float] = []
        """By part: how long it took in the last turn that was timed, until somebody has taken that."""
        self.busy_s = [0.0] * len(self.parts)
        """By part: time spent computing, as far as it was shared out (`share`)."""
        self._seen = [0.0] * len(self.parts)
        """By part: what it took in all samples, older ones ever less."""
        self._sampled_at = self._next_sample = float("-inf")
        self._samples = 0
        self._ends = [part for part in range(len(self.parts)) if not self._to[part] and not self._exit[part]]
        self._entrances = [range(sum(wide[:part]), sum(wide[: part + 1])) for part in range(len(self.parts))]
        self.ordinary: tuple[Step, ...] = ()
        """By part."""
        self._timed: tuple[Step, ...] = ()
        self.guard_by(tuple(map(Guard, self.parts)))

    def guard_by(self, guards: Sequence[Guard]) -> None:
        """From now on these stand around its parts."""
        self.guards = tuple(guards)
        """By part."""
        self.ordinary = tuple(
            Step(part, guard, guard.logic, guard.process, self._to[part], self._exit[part])
            for part, guard in enumerate(guards)
        )
        self._timed = tuple(step._replace(process=self._timing(step)) for step in self.ordinary)

    def _timing(self, step: Step) -> Process:
        part, process = step.part, step.process

        def timed(batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
            assert self.clock is not None
            began = self.clock()
            emissions = process(batch, source, now)
            self.sample[part] += self.clock() - began
            return emissions

        return timed

    def steps(self, now: Now) -> tuple[Step, ...]:
        """For a turn at `now`: now and then those that are timed."""
        if self.clock is None:
            return self.ordinary
        if self.sample and now.monotonic == self._sampled_at:  # all of a turn, not only its first batch
            return self._timed
        if now.monotonic < self._next_sample:
            return self.ordinary
        self._samples, self._sampled_at = self._samples + 1, now.monotonic
        self._next_sample = now.monotonic + self.sampled_s * (0.5 + self._samples * GOLDEN % 1.0)
        self.sample = [0.0] * len(self.parts)
        return self._timed

    def share(self, time_s: float) -> None:
        """Shares out among the parts what all turns since the last sample took, as the last samples together say: a
        short one weighs little."""
        sample, self.sample = self.sample, []
        self._seen = [KEPT * before + took for before, took in zip(self._seen, sample, strict=True)]
        if whole := sum(self._seen):
            for part, took in enumerate(self._seen):
                self.busy_s[part] += time_s * took / whole

    def entrances(self, part: int) -> range:
        """The numbers of the region's inputs by which rows come to `part`: one for each input of that."""
        return self._entrances[part]

    @property
    def left(self) -> int:
        """Rows that have come to parts behind which nothing is."""
        took, rows = self.took, 0
        for part in self._ends:
            rows += took[part]
        return rows

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        part = 0
        if source not in self._entrances[0]:
            part = next(part for part, numbers in enumerate(self._entrances) if source in numbers)
        return self.through({part: [(source - self._entrances[part].start, batch)]}, now, self.steps(now))

    def through(self, waiting: dict[int, PartInput], now: Now, steps: Sequence[Step] = ()) -> list[Emission]:
        """Runs waiting batches through their parts and all that follow. Returns the batches that leave the region."""
        out: list[Emission] = []
        held, took, gave = self.held, self.took, self.gave
        for step in (steps or self.ordinary)[min(waiting, default=0) :]:
            part, guard, logic, process, to, leaves = step
            if part not in waiting:
                continue
            for source, batch in waiting.pop(part):
                if held and part in held:  # nothing overtakes
                    held[part].append((source, batch))
                    continue
                took[part] += len(batch.payloads if isinstance(batch, RawBatch) else batch.rows)
                emissions = process(batch, source, now)
                if guard.held:
                    self.hold(part, source)
                if logic.messages:
                    self.take_messages(logic)
                for port, given in emissions:  # as `pass_on`, whose call would cost more than what it does here
                    gave[part] += len(given.rows)
                    if port in to:
                        for other, at in to[port]:
                            if other in waiting:
                                waiting[other].append((at, given))
                            else:
                                waiting[other] = [(at, given)]
                    if port in leaves:
                        out.append(Emission(leaves[port], given))
        return out

    def pass_on(
        self, step: Step, emissions: Iterable[Emission], waiting: dict[int, PartInput], out: list[Emission]
    ) -> None:
        """Distributes the emissions of a part: into `waiting`, for the parts that it feeds, and `out` of the region."""
        to, leaves = step.to, step.exit
        for port, batch in emissions:
            if port in to:
                for other, source in to[port]:
                    if other in waiting:
                        waiting[other].append((source, batch))
                    else:
                        waiting[other] = [(source, batch)]
            if port in leaves:
                out.append(Emission(leaves[port], batch))

    def hold(self, part: int, source: int) -> None:
        """Keeps the batches that the error boundary of `part` could not give to it yet."""
        guard = self.guards[part]
        held, guard.held = guard.held, []
        self.took[part] -= sum(map(len, held))
        self.held[part] = [(source, batch) for batch in held]

    def take_held(self) -> PartInput:
        """Takes the held batches, which come before all others, with their input of the region. Those nearest to the
        end are the oldest."""
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
        for step in self.ordinary:
            emissions = step.guard.flush(now)
            self.take_messages(step.guard.logic)
            self.gave[step.part] += sum([len(emission.batch) for emission in emissions])
            waiting: dict[int, PartInput] = {}
            self.pass_on(step, emissions, waiting, out)
            out += self.through(waiting, now)
        return out
