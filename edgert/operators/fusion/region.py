"""Several operators as one instance: rows come to the first, and go from one to the next at once.

    readings ─┬─ classify ───────────── classes        one instance, one queue, one turn for all of it
              ├─ regress ──┬─ beside ── errors
              └─ average ──┘

A region has one entry: all that its stages read, but for the first, comes from within. So rows that leave it never come
back, and the graph of instances has no cycle.

The stages keep their state, counters and names: a checkpoint made without fusion is good with it, and the other way
round. What waited in front of a stage that is not the first then comes by an input of its own: `entrances`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from edgert.core.batch import Batch, RawBatch
from edgert.operators.base.error_boundary import ErrorBoundary, Process
from edgert.operators.base.logic import Emission, Logic, Now

SAMPLED_S: Final = 0.5
"""About so often a turn's stages are timed. Ten times a second cost a twentieth of all CPU where turns are as rare."""
KEPT: Final = 0.995
"""Weight of a sample when the next one comes: some hundred seconds are looked at together."""
GOLDEN: Final = 0.618
"""Part of `SAMPLED_S` by which the moments wander, so that they keep no step with regular events."""
StageInput = list[tuple[int, Batch | RawBatch]]
"""Batches for a stage, each with the number of the input by which it comes."""


class StageStep(NamedTuple):
    """The values of a stage that each turn needs."""

    stage: int
    boundary: ErrorBoundary
    logic: Logic
    process: Process
    to: Mapping[int, Sequence[tuple[int, int]]]
    """Fed stages by port, and by which of their inputs."""
    exit: Mapping[int, int]
    """The region's own port, by port."""


class StageEdge(NamedTuple):
    """From one stage to a later one."""

    stage: int
    port: int
    to: int
    input: int


class Region(Logic):
    """Each of `stages` comes after all that feed it. `exits`: what leaves, as (stage, port); the first leaves
    the region by port 0, the second by port 1, ... `inputs`: number of inputs of the first stage."""

    def __init__(
        self,
        stages: Sequence[Logic],
        edges: Iterable[StageEdge],
        exits: Sequence[tuple[int, int]] = (),
        inputs: int = 1,
    ) -> None:
        super().__init__()
        self.stages = tuple(stages)
        self.drops = self.stages[0].drops
        self.took = [0] * len(self.stages)
        """Rows (for a source: messages) that each stage has taken."""
        self.gave = [0] * len(self.stages)
        """Rows that each stage gave to others, or out."""
        self.held: dict[int, StageInput] = {}
        """Batches by stage that wait for a row that is to be tried again, with the input of the stage by which each
        comes."""
        self._to: list[dict[int, list[tuple[int, int]]]] = [{} for _ in self.stages]
        """Fed stages by stage and port, and by which of their inputs."""
        self._exit: list[dict[int, int]] = [{} for _ in self.stages]
        """The region's own port, by stage and port."""
        wide = [max(1, inputs), *([1] * (len(self.stages) - 1))]
        for stage, port, to, at in edges:
            self._to[stage].setdefault(port, []).append((to, at))
            wide[to] = max(wide[to], at + 1)
        for number, (stage, port) in enumerate(exits):
            self._exit[stage][port] = number
        self.sampled_s = SAMPLED_S
        self.clock: Callable[[], float] | None = None
        """Clock by which its stages are timed, seconds; None: they are not timed."""
        self.sample: list[float] = []
        """Time by stage in the last turn that was timed, until somebody has taken it."""
        self.busy_s = [0.0] * len(self.stages)
        """Time spent computing, by stage, as far as it was shared out (`share`)."""
        self._seen = [0.0] * len(self.stages)
        """Time by stage in all samples, older ones ever less."""
        self._sampled_at = self._next_sample = float("-inf")
        self._samples = 0
        self._ends = [stage for stage in range(len(self.stages)) if not self._to[stage] and not self._exit[stage]]
        self._entrances = [range(sum(wide[:stage]), sum(wide[: stage + 1])) for stage in range(len(self.stages))]
        self.ordinary: tuple[StageStep, ...] = ()
        """Steps by stage."""
        self._timed: tuple[StageStep, ...] = ()
        self.set_boundaries(tuple(map(ErrorBoundary, self.stages)))

    def set_boundaries(self, boundaries: Sequence[ErrorBoundary]) -> None:
        """From now on these stand around its stages."""
        self.boundaries = tuple(boundaries)
        """Error boundaries by stage."""
        self.ordinary = tuple(
            StageStep(stage, boundary, boundary.logic, boundary.process, self._to[stage], self._exit[stage])
            for stage, boundary in enumerate(boundaries)
        )
        self._timed = tuple(step._replace(process=self._timing(step)) for step in self.ordinary)

    def _timing(self, step: StageStep) -> Process:
        stage, process = step.stage, step.process

        def timed(batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
            assert self.clock is not None
            began = self.clock()
            emissions = process(batch, source, now)
            self.sample[stage] += self.clock() - began
            return emissions

        return timed

    def steps(self, now: Now) -> tuple[StageStep, ...]:
        """For a turn at `now`: now and then those that are timed."""
        if self.clock is None:
            return self.ordinary
        if self.sample and now.monotonic == self._sampled_at:  # all of a turn, not only its first batch
            return self._timed
        if now.monotonic < self._next_sample:
            return self.ordinary
        self._samples, self._sampled_at = self._samples + 1, now.monotonic
        self._next_sample = now.monotonic + self.sampled_s * (0.5 + self._samples * GOLDEN % 1.0)
        self.sample = [0.0] * len(self.stages)
        return self._timed

    def share(self, time_s: float) -> None:
        """Shares out among the stages what all turns since the last sample took, as the last samples together say: a
        short one weighs little."""
        sample, self.sample = self.sample, []
        self._seen = [KEPT * before + took for before, took in zip(self._seen, sample, strict=True)]
        if whole := sum(self._seen):
            for stage, took in enumerate(self._seen):
                self.busy_s[stage] += time_s * took / whole

    def entrances(self, stage: int) -> range:
        """The numbers of the region's inputs by which rows come to `stage`: one for each input of that."""
        return self._entrances[stage]

    @property
    def left(self) -> int:
        """Rows that have come to stages behind which nothing is."""
        took, rows = self.took, 0
        for stage in self._ends:
            rows += took[stage]
        return rows

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        stage = 0
        if source not in self._entrances[0]:
            stage = next(stage for stage, numbers in enumerate(self._entrances) if source in numbers)
        return self.through({stage: [(source - self._entrances[stage].start, batch)]}, now, self.steps(now))

    def through(self, waiting: dict[int, StageInput], now: Now, steps: Sequence[StageStep] = ()) -> list[Emission]:
        """Runs waiting batches through their stages and all that follow. Returns the batches that leave the region."""
        out: list[Emission] = []
        held, took, gave = self.held, self.took, self.gave
        for step in (steps or self.ordinary)[min(waiting, default=0) :]:
            stage, boundary, logic, process, to, leaves = step
            if stage not in waiting:
                continue
            for source, batch in waiting.pop(stage):
                if held and stage in held:  # nothing overtakes
                    held[stage].append((source, batch))
                    continue
                took[stage] += len(batch.payloads if isinstance(batch, RawBatch) else batch.rows)
                emissions = process(batch, source, now)
                if boundary.held:
                    self.hold(stage, source)
                if logic.messages:
                    self.take_messages(logic)
                for port, given in emissions:  # as `pass_on`, whose call would cost more than what it does here
                    gave[stage] += len(given.rows)
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
        self, step: StageStep, emissions: Iterable[Emission], waiting: dict[int, StageInput], out: list[Emission]
    ) -> None:
        """Puts the emissions of a stage into `waiting`, for the stages that it feeds, and into `out`."""
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

    def hold(self, stage: int, source: int) -> None:
        """Keeps the batches that the error boundary of `stage` could not give to it yet."""
        held = self.boundaries[stage].take_held(source)
        self.took[stage] -= sum([len(batch) for _, batch in held])
        self.held[stage] = held

    def take_held(self, source: int) -> StageInput:
        """Takes the held batches, each with its own input of the region, whatever the `source` of the turn. Those
        nearest to the end are the oldest."""
        held, self.held = self.held, {}
        return [
            (self._entrances[stage].start + source, batch)
            for stage in sorted(held, reverse=True)
            for source, batch in held[stage]
        ]

    def take_messages(self, logic: Logic) -> None:
        """The messages of a stage are those of the region."""
        if logic.messages:
            self.messages += logic.messages
            logic.messages = []

    def flush(self, now: Now, but: Container[Logic] = ()) -> Sequence[Emission]:
        """Works as `Logic.flush`. Stages whose logic is in `but` keep what they hold."""
        out: list[Emission] = []
        for step in self.ordinary:
            emissions = step.boundary.flush(now, but)
            self.take_messages(step.boundary.logic)
            self.gave[step.stage] += sum([len(emission.batch) for emission in emissions])
            waiting: dict[int, StageInput] = {}
            self.pass_on(step, emissions, waiting, out)
            out += self.through(waiting, now)
        return out
