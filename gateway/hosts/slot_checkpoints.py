"""Checkpoints of flows in slots: every slot gives its part, behind the same mark in the input."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from edgert.core.batch import Row
from edgert.core.checkpoint.position import Position
from edgert.links import frames
from edgert.links.frames import frame
from edgert.runtime.flow_run import HOLD_S, FlowRun
from edgert.runtime.run_out import NO_HEIRS, Heirs, Said
from gateway.hosts.host import Feeding, QueueContents
from gateway.hosts.offline_run import OfflineRuns
from gateway.hosts.orders import Orders
from gateway.hosts.slot_process import SlotProcess
from gateway.hosts.slotted_flow import SlottedFlow

log = logging.getLogger(__name__)

ANSWER_S: Final = 1.0
"""Beyond the time that a slot has to reach a batch boundary."""


class SlotCheckpoints:
    """See `Checkpoints`."""

    def __init__(
        self, hosted: Mapping[FlowRun, SlottedFlow], processes: Sequence[SlotProcess], offline_runs: OfflineRuns,
        orders: Orders,
    ) -> None:  # fmt: skip
        """`hosted`, `processes`: those of the host, at any time."""
        self._hosted, self._processes, self._offline_runs, self._orders = hosted, processes, offline_runs, orders
        self.hold_s, self.answer_s = HOLD_S, ANSWER_S

    def is_up(self, run: FlowRun) -> bool:
        hosted = self._hosted.get(run)  # or it was given up meanwhile
        return hosted is not None and not hosted.down and all(self._processes[s].answers for s in hosted.slots)

    def hangs(self, run: FlowRun) -> bool:
        return False  # only the slots know

    def capture(self, run: FlowRun, feeding: Feeding) -> bool:
        return self._capture(run, feeding, self.hold_s, stop=False)

    def halt(self, run: FlowRun, feeding: Feeding, timeout_s: float) -> bool:
        return self._capture(run, feeding, timeout_s, stop=True)

    def stop_for_plan(self, run: FlowRun, feeding: Feeding, timeout_s: float) -> bool:
        return self._capture(run, feeding, timeout_s, stop=True)

    def _capture(self, run: FlowRun, feeding: Feeding, timeout_s: float, *, stop: bool) -> bool:
        hosted = self._ask(run, feeding, timeout_s, stop=stop)
        return hosted is not None and self._answered(hosted, timeout_s + self.answer_s)

    def _ask(self, run: FlowRun, feeding: Feeding, timeout_s: float, *, stop: bool) -> SlottedFlow | None:
        """Marks the input and asks every slot for its part. With `stop` the flow's instances wait afterwards until they
        are dropped or told to go on. Never while another checkpoint of the flow is under way: see
        `Checkpointer.busy`."""
        hosted = self._hosted.get(run)
        if hosted is None or not self.is_up(run):
            return None  # soon; meanwhile no other flow's checkpoint has to wait for that

        with feeding, hosted.lock:
            hosted.mark(stop)
            if not hosted.down:
                asked = hosted.checkpoint, stop, timeout_s, hosted.rewriting
                self._orders.to_all(hosted, frame(frames.MARK, hosted.number, *asked))
        return hosted

    def _answered(self, hosted: SlottedFlow, timeout_s: float) -> bool:
        """Waits for every slot's part, and takes it."""
        with hosted.lock:
            hosted.lock.wait_for(hosted.answered, timeout_s)
            hosted.run.pause_s = time.perf_counter() - hosted.asked
            if hosted.whole():
                hosted.take()
                return True
            hosted.marks.pop()
            faults = hosted.faults()
            if not hosted.down:
                self._orders.to_all(hosted, frame(frames.ABORT, hosted.number, hosted.checkpoint))
        if faults:
            raise RuntimeError(f"the state could not be captured: {faults[0]}")
        return False

    def committed(self, run: FlowRun) -> None:
        if (hosted := self._hosted.get(run)) is not None:
            with hosted.lock:
                hosted.trim()

    def spill(self, run: FlowRun, feeding: Feeding) -> tuple[Position, QueueContents]:
        hosted = self._hosted.get(run)
        return hosted.spill(feeding) if hosted else (run.progress.position(), {})

    def spilled(self, run: FlowRun) -> None:
        if (hosted := self._hosted.get(run)) is not None:  # or it was given up meanwhile
            hosted.spilled()

    def take_results(self, run: FlowRun) -> list[Row]:
        hosted = self._hosted.get(run)
        if hosted is None:
            return []
        with hosted.lock:
            results, hosted.results = hosted.results, {}
        return [row for rows in results.values() for row in rows]

    def give_back(self, run: FlowRun, rows: Sequence[Row]) -> None:
        if (hosted := self._hosted.get(run)) is not None:
            with hosted.lock:
                hosted.rows += rows

    def run_out(self, run: FlowRun, heirs: Heirs = NO_HEIRS) -> Iterator[Said]:
        return self._offline_runs.run_out(self._hosted[run], heirs)  # the flow needs no slot any more

    def quiesce(self, runs: Sequence[FlowRun], feeding: Feeding, timeout_s: float) -> list[FlowRun]:
        """Takes the last checkpoint of all flows at the same time, with the queued entries. A flow with a hanging slot
        does not delay the others."""
        hold_s = min(self.hold_s, timeout_s - self.answer_s)
        ends = time.monotonic() + hold_s + self.answer_s
        asked = [(run, self._ask(run, feeding, hold_s, stop=True)) for run in runs]
        return [run for run, hosted in asked if self._rests(run, hosted, ends - time.monotonic())]

    def _rests(self, run: FlowRun, asked: SlottedFlow | None, timeout_s: float) -> bool:
        """True if the flow rests within `timeout_s`. Else it ends without a last checkpoint. So does a flow that was
        not asked, as its slot may still answer."""
        try:
            if asked and self._answered(asked, timeout_s):
                return True
        except RuntimeError as error:
            log.error("flow %s ends without a last checkpoint: %s", run.flow.name, error)
        if (hosted := self._hosted.get(run)) is not None:
            with hosted.lock:
                hosted.down = True
                self._orders.end_life(hosted)
        return False

    def recount(self, run: FlowRun) -> None:
        if (hosted := self._hosted.get(run)) is not None:
            with hosted.lock:
                hosted.recount()
