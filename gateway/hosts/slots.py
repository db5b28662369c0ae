"""Flows in slots: processes that this daemon starts, feeds, asks for checkpoints, and starts again when they die.

The daemon keeps the input of each flow since its last checkpoint. When a slot dies, its flows go back to that
checkpoint in all their slots and get this input again: nothing is lost or doubled (docs/internals/slots.md).
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from edgert.core.batch import Batch, RawBatch
from edgert.core.clock import Clock
from edgert.core.errors import MisfitError
from edgert.core.rows import unpack_rows
from edgert.core.settings.gateway import Pool as PoolSettings
from edgert.flow.spec import Registry
from edgert.links import frames
from edgert.links.frames import TooLarge, frame
from edgert.operators.base.memory import MemoryBudget
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.report import Report
from edgert.runtime.pool.pool import Send
from edgert.runtime.slot.run import slot_of
from edgert.scheduling.consumption import Consumption
from edgert.scheduling.locality_fairness import PLACEMENTS
from gateway.hosts.host import Arrival, Entries, Recovery
from gateway.hosts.offline_run import OfflineRuns
from gateway.hosts.orders import Orders
from gateway.hosts.slot_checkpoints import SlotCheckpoints
from gateway.hosts.slot_deaths import SlotDeaths
from gateway.hosts.slot_figures import SlotFigures
from gateway.hosts.slot_process import SlotProcess
from gateway.hosts.slotted_flow import KEPT_BYTES, STOOD_STILL, Fed, SlotAnswer, SlottedFlow, assign
from gateway.hosts.weights import Weights

log = logging.getLogger(__name__)

BACKLOG_BYTES: Final = 8_388_608
"""Bytes that may wait for a slot before such input is no longer fed to it: the slot does not keep up, or hangs."""


class Slots:
    """A `Host` (see there) of processes."""

    def __init__(
        self,
        settings: PoolSettings,
        registry: Registry,
        clock: Clock,
        *,
        level: str,
        send: Send,
        recovery: Recovery,
        make_process: type[SlotProcess] = SlotProcess,
        state_limit_bytes: float = math.inf,
    ) -> None:
        """`state_limit_bytes`: for what operators of all flows keep by key; each slot has an even share."""
        self.memory = MemoryBudget(state_limit_bytes)
        self._clock = clock
        self._send, self._recovery = send, recovery
        self._offline_runs = OfflineRuns(registry, clock, recovery)
        self.weights = Weights()
        self._assign = PLACEMENTS[settings.placement]
        pool = {name: getattr(settings, name) for name in ("workers", "policy", "consumption", "consumption_rows")}
        self._settings: dict[str, Any] = {
            "pool": {**pool, "state_bytes": state_limit_bytes / settings.slots}, "level": level,
        }  # fmt: skip
        self.processes = [
            make_process(number, self._settings, self._frame, self._died) for number in range(settings.slots)
        ]
        for process in self.processes:
            for other in self.processes[: process.number]:
                process.pair(other)
        self.hosted: dict[FlowRun, SlottedFlow] = {}
        """The flows in slots, by run."""
        self.orders = Orders(self.processes)
        self._by_instance: dict[Instance, tuple[SlottedFlow, int]] = {}
        """Also the instance's number: its index in the plan's order."""
        self._models: WeakKeyDictionary[FlowRun, dict[str, Mapping[str, Any]]] = WeakKeyDictionary()
        self.figures = SlotFigures(self.hosted, self.processes, clock)
        self.checkpoints = SlotCheckpoints(self.hosted, self.processes, self._offline_runs, self.orders)
        self._last = 0
        self._building = threading.Lock()
        """Slots must hear of runs in the order of their numbers."""
        self.deaths = SlotDeaths(self.processes, clock, self.orders, self.begin_again, recovery)

    # -- life

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        for process in self.processes:
            process.start(loop)

    async def leave(self) -> None:
        await self.deaths.stop()

    async def stop(self) -> None:
        await asyncio.gather(*(process.stop() for process in self.processes))

    def _died(self, process: SlotProcess) -> None:
        """On the loop."""
        flows = [hosted for hosted in self.hosted.values() if process.number in hosted.slots]
        self.figures.died(process, flows)
        self.deaths.died(process, flows)

    def begin_again(self, hosted: SlottedFlow, blobs: list[bytes], queue: bytes) -> None:
        """On the store thread."""
        run = hosted.run
        if run not in self.hosted or run.ended:
            return  # halted before; one that stands still begins again with `go_on`
        with hosted.lock:
            if not hosted.down:
                return  # its slot died while it stood still: both the death and `go_on` bring it back
            lost = hosted.began_anew()
            run.stored(blobs, queue)
        with self._recovery.feeding:
            self._go_on(hosted, blobs, queue, lost)

    def _go_on(self, hosted: SlottedFlow, blobs: Sequence[bytes], queue: bytes, lost: int) -> None:
        """Runs a flow from its checkpoint and feeds it the input since then; nothing else can be fed meanwhile."""
        with hosted.lock:
            if hosted.run not in self.hosted:
                return
            new = not hosted.since
            self._build(hosted, blobs, queue)
            again = 0
            for fed in hosted.fed:
                if fed.batch is not None:
                    self._feed(hosted, fed.instance, fed.source, fed.batch, fed.producer, tried_before=True)
                    again += len(fed.batch)
            hosted.down = False
        if new and not lost:
            return
        log.warning(
            "a slot died: flow %s is back at its last checkpoint and was fed %d messages again; %d are lost",
            hosted.run.flow.name, again, lost,
        )  # fmt: skip

    # -- flows

    def begin(self, run: FlowRun, blobs: Sequence[bytes] = (), queue: bytes = b"", *, stands: bool = False) -> None:
        hosted = self._settle(run, blobs, queue)
        hosted.down = stands
        if not stands:
            self._build(hosted, blobs, queue)
        self._enter(hosted)

    def _settle(self, run: FlowRun, blobs: Sequence[bytes], queue: bytes) -> SlottedFlow:
        """Gives each of its instances a slot, the emptiest of them first."""
        order = sorted(self.processes, key=lambda p: (self.figures.instances_in(p.number), p.number))
        run.leave(assign(run, self._assign, [process.number for process in order]))
        run.stored(blobs, queue)
        return SlottedFlow(run, [slot_of(instance, run.gateway) for instance in run.plan.instances.values()])

    def _enter(self, hosted: SlottedFlow) -> None:
        self.hosted[hosted.run] = hosted
        for index, instance in enumerate(hosted.run.all):
            self._by_instance[instance] = (hosted, index)

    def successor(self, old: FlowRun, new: FlowRun, blobs: Sequence[bytes], queue: bytes) -> Callable[[], None]:
        hosted = self._settle(new, blobs, queue)
        build = self._packed(hosted, blobs, queue)  # fails before `old` is gone, if at all
        return partial(self.replace, old, hosted, build)

    def replace(self, old: FlowRun, hosted: SlottedFlow, build: bytes) -> None:
        """Lets a flow go on instead of `old`, which stands still. `build`: as `_packed` made it."""
        before, new = self.hosted[old], hosted.run
        with before.lock:
            fed, since = list(before.fed), None if before.down else before.since
        models = self._models.get(old)
        self.remove(old)
        if models is not None:
            self._models[new] = models
        with hosted.lock:
            hosted.deaths = before.deaths
            self._send_build(hosted, build)
            hosted.since = hosted.since if since is None else since  # for its slots' deaths it just lives on
            self._enter(hosted)
            self._feed_heirs(hosted, fed)

    def _feed_heirs(self, hosted: SlottedFlow, fed: Iterable[Fed]) -> None:
        """Feeds to a flow what came while it stood still, to be run by this plan."""
        run, lost = hosted.run, 0
        for one in fed:
            if one.batch is None:
                for instance, messages in (one.lost or {}).items():
                    hosted.drops[run.heir(instance), STOOD_STILL] += messages
                    lost += messages
                continue
            instance = run.heir(one.instance)
            hosted.keep(instance, one.source, one.batch, one.producer)
            self._feed(hosted, instance, one.source, one.batch, one.producer, tried_before=True)
        if lost:
            log.warning(
                "flow %s: %d messages of QoS 0 are lost: more came than are kept (%d bytes) while the flow stood "
                "still for plan %d", run.flow.name, lost, KEPT_BYTES, run.plan.number,
            )  # fmt: skip

    def go_on(self, run: FlowRun, state: Sequence[bytes] = ()) -> None:
        if (hosted := self.hosted.get(run)) is not None:
            with hosted.lock:
                if hosted.down:  # a slot died meanwhile, or it was not built yet: it begins with what the database has
                    self.deaths.bring_back(hosted)
                else:
                    self.orders.to_all(hosted, frame(frames.ABORT, hosted.number, hosted.checkpoint))

    def _build(self, hosted: SlottedFlow, blobs: Sequence[bytes], queue: bytes) -> None:
        """Raises `MisfitError` for a checkpoint that is too large to be sent to a slot."""
        self._send_build(hosted, self._packed(hosted, blobs, queue))

    def _packed(self, hosted: SlottedFlow, blobs: Sequence[bytes], queue: bytes) -> bytes:
        """The frame with which a life of the flow begins, under the next number. Raises as `_build`."""
        run = hosted.run
        with self._building:
            self._last += 1
            number = self._last
        try:
            build = frame(
                frames.BUILD, number, run.flow.name, run.flow.document, run.version, run.epoch, run.fusion,
                run.fission, run.gateway, run.plan.assignment(), run.plan.number, list(blobs), queue,
            )  # fmt: skip
        except TooLarge as error:
            raise MisfitError(f"its checkpoint is too large for a slot: {error}") from error
        hosted.number = number
        return build

    def _send_build(self, hosted: SlottedFlow, build: bytes) -> None:
        with self._building:
            self.orders.by_number[hosted.number] = hosted
            hosted.since = self._clock.monotonic()
            self.orders.to_all(hosted, build)
        for operator, document in list(self._models.get(hosted.run, {}).items()):
            self.orders.to_all(hosted, frame(frames.MODEL, hosted.number, operator, document))
        self._tell_weights(hosted)

    def _tell_weights(self, hosted: SlottedFlow) -> None:
        if weights := self.weights.of(hosted.run):
            self.orders.to_all(hosted, frame(frames.WEIGH, hosted.number, weights))

    def remove(self, run: FlowRun) -> None:
        hosted = self.hosted.pop(run, None)
        if hosted is not None:
            with hosted.lock:  # another thread may just bring the flow back, under a new number
                self.orders.end_life(hosted)
                hosted.down = True  # ends a trial of the flow that is under way
        self._models.pop(run, None)
        for instance in run.all:
            self._by_instance.pop(instance, None)

    # -- input

    def put(self, entries: Entries) -> None:
        for instance, source, batch in entries:
            hosted, _ = self._by_instance[instance]
            with hosted.lock:
                if not batch.owed and not hosted.down and self._backlog(instance) > BACKLOG_BYTES:
                    hosted.drops[instance, "a slot does not keep up"] += len(batch)
                    continue
                hosted.keep(instance, source, batch)
                if not hosted.down:
                    self._feed(hosted, instance, source, batch)

    def _feed(
        self,
        hosted: SlottedFlow,
        instance: Instance,
        source: int,
        batch: Batch | RawBatch,
        producer: int = 0,
        *,
        tried_before: bool = False,
    ) -> None:
        _, index = self._by_instance[instance]
        packed = frames.pack_batch(batch)
        data = frame(frames.DATA, hosted.number, index, source, producer, packed, tried_before and batch.owed)
        self.processes[hosted.where[index]].link.send(data)

    def deliver(self, run: FlowRun, arrivals: Sequence[Arrival]) -> None:
        hosted = self.hosted[run]
        with hosted.lock:
            for instance, source, producer, batch in arrivals:
                hosted.keep(instance, source, batch, producer)
                if not hosted.down:
                    self._feed(hosted, instance, source, batch, producer)

    def has_room(self, run: FlowRun) -> bool:
        hosted = self.hosted.get(run)
        if hosted is None or hosted.down:
            return False
        return all(self.processes[slot].link.backlog_bytes < BACKLOG_BYTES for slot in hosted.slots)

    def waiting(self, run: FlowRun) -> int:
        hosted = self.hosted.get(run)
        if hosted is None:
            return 0
        with hosted.lock:
            return sum(len(fed.batch) for fed in hosted.fed if fed.batch is not None)

    def _backlog(self, instance: Instance) -> int:
        hosted, index = self._by_instance[instance]
        return self.processes[hosted.where[index]].link.backlog_bytes

    def lend(self) -> None:
        """The slots have threads of their own."""

    # -- what slots say

    def _frame(self, process: SlotProcess, received: list[Any]) -> None:
        kind, *rest = received
        if kind == frames.REPORT:
            figures, reports, raw = rest
            process.reported(figures)
            if raw is not None:
                self.figures.heard_from(process.number)
            for number, stages in reports.items():
                if (hosted := self.orders.by_number.get(number)) is not None:
                    hosted.reports |= {name: Report.from_plain(plain) for name, plain in stages.items()}
                    if raw is not None:
                        self.figures.reported(hosted.run, number, raw[number])
            return
        hosted = self.orders.by_number.get(rest[0])
        if hosted is None:
            return  # of a life that has ended
        if kind == frames.CAPTURED:
            _, checkpoint, queues, deltas, rows, reports, fault, state = rest
            counted = {name: Report.from_plain(plain) for name, plain in reports.items()}
            with hosted.lock:
                answer = SlotAnswer(queues, counted, fault, state)
                hosted.answer(process.number, checkpoint, answer, deltas, unpack_rows(rows))
        elif kind == frames.RESULTS:
            with hosted.lock:
                hosted.results.setdefault(process.number, []).extend(unpack_rows(rest[1]))
        elif kind == frames.DATA:
            _, index, source, producer, packed = rest
            hosted.depart(process.number, index, source, producer, frames.unpack_batch(packed))
        elif kind == frames.MESSAGES:
            _, name, messages = rest
            self._send(hosted.run.instances[name], list(map(tuple, messages)))
        elif kind == frames.FAILED:
            self._recovery.fail(hosted.run, rest[1])

    # -- the rest of a host

    def tick(self, runs: Iterable[FlowRun]) -> bool:
        """Ends slots that hang. The ticks of flows are made in the slots."""
        for process in self.processes:
            process.look(self._clock.monotonic())
        return False

    def consume(self, consumption: Consumption, rows: int) -> None:
        self._settings["pool"]["consumption_rows"] = rows  # for those that are started later, too
        self._tell_settings()

    def log_level(self, level: str) -> None:
        self._settings["level"] = level
        self._tell_settings()

    def _tell_settings(self) -> None:
        for process in self.processes:
            process.link.send(
                frame(frames.SETTINGS, self._settings["pool"]["consumption_rows"], self._settings["level"])
            )

    def offer_model(self, run: FlowRun, operator: str, document: Mapping[str, Any]) -> None:
        hosted = self.hosted.get(run)
        with hosted.lock if hosted else nullcontext():  # if it is just brought back: either that sees it, or it is sent
            self._models.setdefault(run, {})[operator] = document
            if hosted and not hosted.down:
                self.orders.to_all(hosted, frame(frames.MODEL, hosted.number, operator, document))

    def weigh(self, flow: str, weights: Mapping[str, object]) -> None:
        for run in self.weights.put_untrusted(flow, weights, list(self.hosted)):
            hosted = self.hosted[run]
            with hosted.lock:  # if it is just brought back: either that sees it, or it is sent
                if not hosted.down:
                    self._tell_weights(hosted)
