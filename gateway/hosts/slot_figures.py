"""Figures of flows in slots, as slots report them: counters continue when a flow begins a new life after the death of a
slot.

Slots report raw figures only on request. The last reports of a life, which come anyway, complete its counters; only on
edges the rows of a time without a request are missing once the life has ended.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

from edgert.core.clock import Clock
from edgert.flow.plan import DAEMON
from edgert.links import frames
from edgert.links.frames import frame
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.figures import RawFigures, of_reports
from edgert.runtime.instance.report import Report
from gateway.hosts.slot_process import SlotProcess
from gateway.hosts.slotted_flow import SlottedFlow

TOLD_S: Final = 10.0
"""Slots tell figures for so long after they were asked for them."""
AWAITED_S: Final = 0.5


class SlotFigures:
    """See `HostFigures`. Work that is done again after a slot's death counts again: it has cost as much."""

    def __init__(self, hosted: Mapping[FlowRun, SlottedFlow], processes: Sequence[SlotProcess], clock: Clock) -> None:
        """`hosted`: the host's flows, kept up to date by the caller."""
        self._hosted, self._processes, self._clock = hosted, processes, clock
        self._wanted_until = -math.inf
        self._awaited: dict[int, asyncio.Event] = {}
        """Slots that were asked just now, and told no figures before."""
        self._flows: WeakKeyDictionary[FlowRun, _Lives] = WeakKeyDictionary()

    async def ask(self) -> None:
        """Waits for the first figures of slots that told none, `AWAITED_S` at most."""
        now = self._clock.monotonic()
        left_s = self._wanted_until - now
        if left_s <= TOLD_S / 2:
            self._wanted_until = now + TOLD_S
            running = [process for process in self._processes if process.running]
            for process in running:
                process.link.send(frame(frames.FIGURES, TOLD_S))
            if left_s <= 0:
                self._awaited = {process.number: asyncio.Event() for process in running}
        with suppress(TimeoutError):
            async with asyncio.timeout(AWAITED_S):
                for heard in list(self._awaited.values()):
                    await heard.wait()
        self._awaited = {}

    def heard_from(self, slot: int) -> None:
        """A slot has told figures. On the loop."""
        if (heard := self._awaited.get(slot)) is not None:
            heard.set()

    def died(self, slot: SlotProcess, flows: Iterable[SlottedFlow]) -> None:
        """A slot has died, and has a new link already: it is told whether figures are wanted. `flows`: those that ran
        in it, whose lives end now. On the loop."""
        left_s = self._wanted_until - self._clock.monotonic()
        if left_s > 0:
            slot.link.send(frame(frames.FIGURES, left_s))
        for hosted in flows:
            self._complete(hosted)

    def _complete(self, hosted: SlottedFlow) -> None:
        """Brings the counters of a life that ends to those of its last reports."""
        run = hosted.run
        stages: dict[str, list[Report]] = {}
        for name, stage in run.stages.items():
            with hosted.lock:
                known = hosted.reports.get(name, Report()).at_least(hosted.captured.get(name, Report()))
            stages.setdefault(stage.instance.name, []).append(known)
        lives = self._life(run, hosted.number)
        for name, reports in stages.items():
            exits = {stage for stage, _ in run.plan.instances[name].exits}
            lives.now[name] = lives.now.get(name, RawFigures()).at_least(of_reports(reports, exits))

    def reported(self, run: FlowRun, life: int, figures: Mapping[str, Sequence[Any]]) -> None:
        """A slot has said what instances of a flow have done in the flow's `life` (the number of its run)."""
        self._life(run, life).now |= {name: RawFigures(*plain) for name, plain in figures.items()}

    def _life(self, run: FlowRun, life: int) -> _Lives:
        """The lives of a flow, of which `life` is the present one."""
        lives = self._flows.setdefault(run, _Lives())
        if lives.number != life:
            lives.before = {name: lives.get(name) for name in lives.now.keys() | lives.before.keys()}
            lives.number, lives.now = life, {}
        return lives

    def get(self, run: FlowRun, name: str) -> RawFigures:
        """The figures of one instance; zeros before its first report."""
        lives = self._flows.get(run)
        return lives.get(name) if lives else RawFigures()

    def of(self, run: FlowRun) -> list[RawFigures]:
        return [self.get(run, name) for name in run.plan.instances]

    def report(self, run: FlowRun, name: str) -> Report:
        hosted = self._hosted[run]
        with hosted.lock:
            return hosted.report(name)

    def changes(self, run: FlowRun) -> float:
        """See `HostFigures`: slots report at their own times."""
        return math.nan

    def instances_in(self, slot: int) -> int:
        """Returns how many instances a slot has, of all flows."""
        return sum(hosted.where.count(slot) for hosted in self._hosted.values())

    def slots(self) -> list[dict[str, Any]]:
        return [process.status(self.instances_in(process.number)) for process in self._processes]

    def where(self, run: FlowRun) -> list[int | None]:
        return [None if slot == DAEMON else slot for slot in self._hosted[run].where]

    def processes(self) -> dict[int, tuple[int, Mapping[int, str]]]:
        return {p.number: (p.pid, p.roles) for p in self._processes if p.running and p.pid is not None}


class _Lives:
    """Figures of one flow, of its present life and of those before."""

    def __init__(self) -> None:
        self.number = 0
        self.now: dict[str, RawFigures] = {}
        """Figures of the present life, by instance."""
        self.before: dict[str, RawFigures] = {}
        """Sum of the figures of all earlier lives, by instance."""

    def get(self, name: str) -> RawFigures:
        now, before = self.now.get(name), self.before.get(name)
        if now and before:
            return now.after(before)
        return now or (RawFigures(before.counters, sent=before.sent, left=before.left) if before else RawFigures())
