"""The part of a flow that runs in one slot, and its part in the flow's checkpoints.

A checkpoint of a flow over several slots is aligned: each slot stops its instances at a batch boundary, says so over
its links to the others (a marker), and takes state and queues once it has the markers of all of them: then everything
that was under way stands in a queue. What comes over a link behind its marker waits aside until then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from edgert.core.batch import Batch
from edgert.core.checkpoint.position import Position
from edgert.core.clock import Clock
from edgert.core.errors import DocumentError, EdgertError
from edgert.core.rows import pack_rows
from edgert.flow.document import from_plain
from edgert.flow.plan import DAEMON, Location, PhysicalInstance, uncopied
from edgert.flow.spec import Registry
from edgert.links import frames
from edgert.links.unix import UnixLink
from edgert.operators.base.logic import Now
from edgert.operators.fusion.chain import Chain
from edgert.operators.sinks import Ship
from edgert.operators.sources.device_watermarks import HISTORY, CopyStanding
from edgert.operators.sources.source import Source
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.edges import Spread, Target
from edgert.runtime.instance.figures import of_instance
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.report import report
from edgert.runtime.pool.pool import Pool
from edgert.runtime.slot.credit import SlotCredit, told_bytes

MOST_INSTANCES: Final = 65_536
"""Most instances of a flow."""


def slot_of(instance: PhysicalInstance, gateway: str) -> int:
    """The slot that runs the instance, or the daemon where another gateway does: batches for it leave by the daemon."""
    location = instance.location
    return location.slot if location is not None and location.gateway == gateway else DAEMON


class SlotRun:
    """One run (see `edgert.links.frames`) in one slot; belongs to the slot's reading thread."""

    def __init__(
        self,
        number: int,
        slot: int,
        links: Mapping[int, UnixLink],
        pool: Pool,
        registry: Registry,
        clock: Clock,
        document: Mapping[str, Any],
        version: int,
        epoch: int,
        fusion: Any,
        fission: bool,
        gateway: str,
        assignment: Mapping[str, Sequence[Any]],
        plan_number: int,
        blobs: Sequence[bytes],
        queue: bytes,
    ) -> None:
        """`assignment`: (gateway, slot) of each operator copy; `blobs` and `queue`: the checkpoint to begin with.

        Raises `EdgertError` where those fit no flow.
        """
        self.number = number
        self._slot, self.links, self._pool, self._clock = slot, links, pool, clock
        flow = from_plain(document, registry, what="flow")
        nowhere = Progress(Position())
        located = {operator: Location(*location) for operator, location in assignment.items()}
        self.flow_run = FlowRun(
            flow, registry, version, epoch, nowhere, fusion, fission, gateway, located, plan_number,
            lambda location: location.slot == slot,
        )  # fmt: skip
        where = [slot_of(instance, gateway) for instance in self.flow_run.plan.instances.values()]
        self._all = list(self.flow_run.instances.values())
        self.mine = {instance.name for instance, at in zip(self._all, where, strict=True) if at == slot}
        self._instances = [instance for instance in self._all if instance.name in self.mine]
        for instance in self._instances:
            instance.of_run = number
        here = [stage.logic for stage in self.flow_run.stages.values() if stage.instance.name in self.mine]
        self._ships = [logic for logic in here if isinstance(logic, Ship)]
        self._sources = [logic for logic in here if isinstance(logic, Source) and len(logic.devices.board) > 1]
        """Copies of sources that run here."""
        self._told: dict[Source, CopyStanding] = {}
        self._others = set(where) - {slot, DAEMON}
        for index, (instance, at) in enumerate(zip(self._all, where, strict=True)):
            if at != slot:  # of another gateway: its batches leave by the daemon
                instance.remote = partial(self._send, at, index)
                instance.schedule.number = self._elsewhere(index)
        self._keep_near(where)
        self._checkpoint = (blobs, queue)
        self.capturing = 0
        """The checkpoint under way; 0: none."""
        self._stop = False
        self._rewrite = False
        self._captured = False
        """True while the run waits to be dropped, or to be told to go on."""
        self._deadline = 0.0
        self._marked = False
        self._heard: dict[int, int] = {}
        """Slot → the newest checkpoint whose marker came from the slot."""
        self._over = 0
        """The newest checkpoint that was taken here, or given up."""
        self._credit = SlotCredit(links, pool, self._elsewhere)
        self._full: dict[int, set[int]] = {}
        """Place of an instance with a queue over its budget → the slots that were told."""
        self._taken: dict[tuple[int, int], int] = {}
        """(slot, index): bytes that came from there to a queue here, of which that slot was not told yet."""
        self._unsaid = ""
        """Why a capture (or results ahead of one) could not be told to the daemon. What it took is lost with that, so
        there is no other until the run begins anew from its last checkpoint."""
        self._aside: list[tuple[int, list[Any]]] = []

    def _keep_near(self, where: Sequence[int]) -> None:
        """Local-or-shuffle: batches that may go to any copy go to those in this process, unless that left a slot with
        copies of the consumer, but none of who feeds it, without rows."""
        at = {instance.name: slot for instance, slot in zip(self._all, where, strict=True)}
        for instance in self._instances:
            givers = {slot for name, slot in at.items() if uncopied(name)[0] == uncopied(instance.name)[0]}
            for edge in chain.from_iterable(instance.edges.outputs.values()):
                if (
                    isinstance(edge, Spread)
                    and edge.divide is None
                    and givers.issuperset(takers := [at[i.name] for i in edge.instances])
                ):
                    edge.near = [n for n, slot in enumerate(takers) if slot == self._slot] or edge.near

    def start(self) -> None:
        """Brings back the checkpoint, and goes."""
        blobs, queue = self._checkpoint
        self._checkpoint = ([], b"")
        self.flow_run.restore(blobs, queue, Now(self._clock.monotonic(), self._clock.wall()), self.mine)
        self._pool.add(self._instances)

    def stop(self) -> None:
        """Ends the run: only the turns under way go on, and their results are dropped."""
        for instance in self._all:
            instance.remote = _nowhere
        self._pool.begin_hold(self._instances)

    def remove(self) -> bool:
        """Leaves the pool; false while a turn is under way (an operator may block)."""
        if not self._pool.at_rest(self._instances):
            return False
        self._pool.remove(self._instances)
        for instance in self._all:
            if instance.schedule.number < 0:
                self._pool.mark_room(instance.schedule.number)
        return True

    def _send(self, slot: int, index: int, target: Target[Instance], batch: Batch) -> None:
        """On a worker's thread: a batch for an instance elsewhere. Without a link to it the other slot is dead, and
        this run ends: its checkpoints need that slot's part, and its next life begins with the last whole one. So a
        batch may be left out here, and no row is lost."""
        link = self.links.get(slot)
        if link is not None:
            packed = frames.pack_batch(batch)
            link.send(frames.frame(frames.DATA, self.number, index, target.source, target.producer, packed))
            if slot != DAEMON:
                self._credit.sent(slot, index, batch.size)

    # -- frames

    def frame(self, origin: int, frame: list[Any]) -> None:
        """Takes a frame that is for this run, from a slot or the daemon."""
        kind, _, *rest = frame
        if kind == frames.DATA:
            if self._behind_marker(origin):
                self._aside.append((origin, frame))
            else:
                self._put(origin, *rest)
        elif kind == frames.STANDING:
            self._hear_standing(*rest)
        elif kind == frames.TAKEN:
            self._credit.taken(*rest)
        elif kind == frames.FULL:
            self._credit.full(rest[0])
        elif kind == frames.ROOM:
            self._credit.room(rest[0])
        elif kind == frames.MARKER:
            if self._behind_marker(origin):  # of the next checkpoint, which holds what waits before it
                self._aside.append((origin, frame))
            else:
                self._heard[origin] = rest[0]
        elif kind == frames.MARK:
            self._begin(*rest)
        elif kind == frames.ABORT:
            self._over = max(self._over, rest[0])
            if self.capturing == rest[0]:
                self._go_on()
        elif kind == frames.MODEL:
            self._model(*rest)
        elif kind == frames.WEIGH:
            for name, weight in rest[0].items():
                if name in self.mine:
                    self._pool.weigh([self.flow_run.instances[name]], weight)

    def _put(
        self, origin: int, index: int, source: int, producer: int, packed: list[Any], tried_before: bool = False
    ) -> None:
        """`again`: it was accepted before, in a life that has ended, and must not be shed now."""
        instance = self._all[index]
        batch = frames.unpack_batch(packed)
        self._pool.take_in(Target(instance, source, producer), batch, accepted=tried_before)
        link = self.links.get(origin)
        if origin == DAEMON or link is None:
            return
        if instance.queue.over and origin not in self._full.get(index, ()):
            self._full.setdefault(index, set()).add(origin)
            link.send(frames.frame(frames.FULL, self.number, index))
        taken = self._taken.get((origin, index), 0) + batch.size
        if taken and taken >= told_bytes():
            link.send(frames.frame(frames.TAKEN, self.number, index, taken))
            taken = 0
        self._taken[origin, index] = taken

    def say_where_room_is(self) -> None:
        """Lets those go on that were told of a full queue, or that had too much under way."""
        self._credit.look()
        for index in [index for index in self._full if not self._all[index].queue.over]:
            for slot in self._full.pop(index):
                if (link := self.links.get(slot)) is not None:
                    link.send(frames.frame(frames.ROOM, self.number, index))

    def tell_standings(self) -> None:
        """Tells the other slots what the copies of sources here know of their devices. The information is a moment old
        on arrival. That closes no window too early: an instance fed by all copies takes the smallest of their
        watermarks."""
        for source in self._sources:
            devices = source.devices
            standing = devices.board[devices.seat][-1]
            if self._others and self._told.get(source) != standing:
                self._told[source] = standing
                for slot in self._others:
                    if (link := self.links.get(slot)) is not None:
                        name = next(n for n, p in self.flow_run.stages.items() if p.logic is source)
                        link.send(frames.frame(frames.STANDING, self.number, name, standing))

    def tell_results(self) -> None:
        """Gives the daemon what an at-least-once flow has made. What the daemon hears before an answer to a MARK
        belongs to that checkpoint, if it has not left by then."""
        if self.flow_run.flow.delivery == "exactly-once" or self.capturing or self._unsaid:
            return
        if rows := [row for ship in self._ships for row in ship.take()]:
            try:
                self.links[DAEMON].send(frames.frame(frames.RESULTS, self.number, pack_rows(rows)))
            except Exception as problem:  # noqa: BLE001 - as for a capture
                self._unsaid = f"its results cannot be packed: {_text(problem)}"

    def _hear_standing(self, name: str, values: Sequence[float]) -> None:
        logic = self.flow_run.stages[name].logic
        if isinstance(logic, Source):
            devices = logic.devices
            devices.board[devices.seat] = (*devices.board[devices.seat][1 - HISTORY :], CopyStanding(*values))

    def _elsewhere(self, index: int) -> int:
        """The number by which this slot's pool knows an instance in another."""
        return -2 - self.number * MOST_INSTANCES - index

    def _behind_marker(self, origin: int) -> bool:
        if origin == DAEMON:
            return bool(self.capturing)
        return self._heard.get(origin, 0) > self._over

    def _begin(self, checkpoint: int, stop: bool, timeout_s: float, rewrite: bool = False) -> None:
        """`rewrite`: all state is wanted, not only what has changed."""
        if self.capturing:  # given up by the daemon: what came since its mark belongs to this one
            self._go_on()
        self.capturing, self._stop, self._marked, self._captured = checkpoint, stop, False, False
        self._rewrite = rewrite
        self._deadline = self._clock.monotonic() + timeout_s
        self._pool.begin_hold(self._instances)
        self.advance(self._clock.monotonic())

    @property
    def waiting(self) -> bool:
        """True if a look at its instances soon may find something to do."""
        return bool(self.capturing) and not self._captured

    def advance(self, now: float) -> None:
        """Goes as far as the checkpoint under way can go now."""
        if not self.waiting:
            return
        if not self._marked and self._pool.at_rest(self._instances):
            self._marked = True
            for slot in self._others:
                if (link := self.links.get(slot)) is not None:
                    link.send(frames.frame(frames.MARKER, self.number, self.capturing))
        if self._marked and all(self._heard.get(slot, 0) >= self.capturing for slot in self._others):
            self._capture()
        elif now > self._deadline:
            self._answer(None, {}, [], {}, "no batch boundary in time")
            self._go_on()

    def _capture(self) -> None:
        try:
            if not self._unsaid:
                self._tell_capture()
        except Exception as problem:  # noqa: BLE001 - a value that cannot be packed, nor could be in the database
            self._unsaid = f"its state and what waits in its queues cannot be packed: {_text(problem)}"
        if self._unsaid:
            self._answer({}, {}, [], {}, self._unsaid)
        self._captured = self._stop
        if not self._stop:
            self._go_on()

    def _tell_capture(self) -> None:
        run = self.flow_run
        deltas: dict[str, Any] = {}
        error = ""
        queues: dict[str, Any] = {}
        state: dict[str, Any] = {}
        try:
            run.take_deltas(deltas, self.mine)
            if self._rewrite:
                state = run.snapshot(run.built, self.mine)
        except Exception as problem:  # noqa: BLE001 - an operator's fault is its flow's alone; what was taken is kept
            error = repr(problem)
        for name, entries in run.queues().items():
            if run.stages[name].instance.name in self.mine:
                queues[name] = [[entry.source, entry.producer, frames.pack_batch(entry.batch)] for entry in entries]
        rows = [row for ship in self._ships for row in ship.take()]
        self._answer(queues, deltas, pack_rows(rows), self.report(self._clock.monotonic()), error, state)

    def _answer(
        self,
        queues: Any,
        deltas: dict[str, Any],
        rows: list[Any],
        reports: dict[str, list[Any]],
        error: str,
        state: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        parts = (queues, deltas, rows, reports, error, dict(state))
        answer = frames.frame(frames.CAPTURED, self.number, self.capturing, *parts)
        self.links[DAEMON].send(answer)

    def _go_on(self) -> None:
        self._over = max(self._over, self.capturing)
        self.capturing = 0
        aside, self._aside = self._aside, []
        self._pool.release(self._instances)
        for origin, frame in aside:
            self.frame(origin, frame)

    def _model(self, operator: str, document: Mapping[str, Any]) -> None:
        mine = [
            stage.logic.predictions
            for stage in self.flow_run.stages.values()
            if stage.instance.name in self.mine and isinstance(stage.logic, Chain)
        ]
        copies = [predictions for predictions in mine if operator in predictions.nodes]
        if copies:
            with suppress(DocumentError):  # the daemon has checked it by the same code
                model = copies[0].checked_untrusted(operator, document)
                for predictions in copies:
                    predictions.offer(operator, model)

    # -- figures

    def report(self, now: float) -> dict[str, list[Any]]:
        """Reports by stage."""
        stages = self.flow_run.stages.items()
        return {name: report(stage, now).plain() for name, stage in stages if stage.instance.name in self.mine}

    def figures(self, now: float) -> dict[str, list[Any]]:
        """Figures by instance."""
        return {instance.name: of_instance(instance, now).plain() for instance in self._instances}


def _text(problem: Exception) -> str:
    return str(problem) if isinstance(problem, EdgertError) else repr(problem)


def _nowhere(target: Target[Instance], batch: Batch) -> None:
    """Drops the batches of an ended run."""
