"""The part of a flow that runs in one slot, and its part in the flow's checkpoints.

A checkpoint of a flow over several slots is aligned: each slot stops its instances at a batch boundary, says so over
its links to the others (a marker), and takes state and queues once it has the markers of all of them: then everything
that was under way stands in a queue. What comes over a link behind its marker waits aside until then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from edgert.core.batch import Batch
from edgert.core.clock import Clock
from edgert.core.errors import DocumentError
from edgert.core.position import Position
from edgert.flow.document import from_plain
from edgert.flow.spec import Registry
from edgert.links import frames
from edgert.links.unix import UnixLink
from edgert.operators.fused import Fused
from edgert.operators.logic import Now
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.pool import Pool
from edgert.runtime.progress import Progress
from edgert.runtime.report import report

DAEMON: Final = -1
"""The daemon, where slots have numbers."""
MOST_INSTANCES: Final = 65_536
"""Of a flow."""


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
        where: Sequence[int],
        blobs: Sequence[bytes],
        queue: bytes,
    ) -> None:
        """`where`: the slot of each instance, in the plan's order; `blobs` and `queue`: the checkpoint to begin with.

        Raises `EdgertError` where those fit no flow.
        """
        self.number = number
        self._slot, self._links, self._pool, self._clock = slot, links, pool, clock
        flow = from_plain(document, registry, what="flow")
        self.flow_run = FlowRun(flow, registry, version, epoch, Progress(Position()), fusion)
        self._all = list(self.flow_run.instances.values())
        self.mine = {instance.name for instance, at in zip(self._all, where, strict=True) if at == slot}
        self._instances = [instance for instance in self._all if instance.name in self.mine]
        self._others = set(where) - {slot}
        for place, (instance, at) in enumerate(zip(self._all, where, strict=True)):
            if at != slot:
                instance.remote = partial(self._send, at, place)
                instance.number = self._elsewhere(place)
        self._checkpoint = (blobs, queue)
        self.capturing = 0
        """The checkpoint under way; 0: none."""
        self._stop = False
        self._captured = False
        """It waits to be dropped, or to be told to go on."""
        self._deadline = 0.0
        self._marked = False
        self._heard: dict[int, int] = {}
        """Slot → the newest checkpoint whose marker came from it."""
        self._over = 0
        """The newest checkpoint that was taken here, or given up."""
        self._full: dict[int, set[int]] = {}
        """Place of an instance whose queue is over its budget → slots that were told."""
        self._aside: list[tuple[int, list[Any]]] = []

    def start(self) -> None:
        """Brings back the checkpoint, and goes."""
        blobs, queue = self._checkpoint
        self._checkpoint = ([], b"")
        self.flow_run.restore(blobs, queue, Now(self._clock.monotonic(), self._clock.wall()), self.mine)
        self._pool.add(self._instances)

    def stop(self) -> None:
        """Ends: nothing of it runs any more but the turns under way, and nobody takes what they give."""
        for instance in self._all:
            instance.remote = _nowhere
        self._pool.begin_hold(self._instances)

    def remove(self) -> bool:
        """Leaves the pool; false while a turn is under way (an operator may block)."""
        if not self._pool.at_rest(self._instances):
            return False
        self._pool.remove(self._instances)
        for instance in self._all:
            if instance.number < 0:
                self._pool.relieve(instance.number)
        return True

    def _send(self, slot: int, place: int, source: int, batch: Batch) -> None:
        """On a worker's thread: a batch for an instance elsewhere."""
        link = self._links.get(slot)
        if link is not None:
            link.send(frames.frame(frames.DATA, self.number, place, source, frames.pack_batch(batch)))

    # -- frames

    def frame(self, origin: int, frame: list[Any]) -> None:
        """Takes a frame that is for this run, from a slot or the daemon."""
        kind, _, *rest = frame
        if kind == frames.DATA:
            if self._behind_marker(origin):
                self._aside.append((origin, frame))
            else:
                self._put(origin, *rest)
        elif kind == frames.FULL:
            self._pool.crowd(self._elsewhere(rest[0]))
        elif kind == frames.ROOM:
            self._pool.relieve(self._elsewhere(rest[0]))
        elif kind == frames.MARKER:
            self._heard[origin] = rest[0]
        elif kind == frames.MARK:
            self._begin(*rest)
        elif kind == frames.ABORT:
            self._over = max(self._over, rest[0])
            if self.capturing == rest[0]:
                self._go_on()
        elif kind == frames.MODEL:
            self._model(*rest)

    def _put(self, origin: int, place: int, source: int, packed: list[Any]) -> None:
        instance = self._all[place]
        self._pool.put([(instance, source, frames.unpack_batch(packed))], wake=False)
        if origin != DAEMON and instance.queue.over and origin not in self._full.get(place, ()):
            self._full.setdefault(place, set()).add(origin)
            self._links[origin].send(frames.frame(frames.FULL, self.number, place))

    def say_where_room_is(self) -> None:
        """Lets those go on that were told of a full queue."""
        for place in [place for place in self._full if not self._all[place].queue.over]:
            for slot in self._full.pop(place):
                if (link := self._links.get(slot)) is not None:
                    link.send(frames.frame(frames.ROOM, self.number, place))

    def _elsewhere(self, place: int) -> int:
        """The number by which this slot's pool knows an instance in another."""
        return -2 - self.number * MOST_INSTANCES - place

    def _behind_marker(self, origin: int) -> bool:
        if origin == DAEMON:
            return bool(self.capturing)
        return self._heard.get(origin, 0) > self._over

    def _begin(self, checkpoint: int, stop: bool, timeout_s: float) -> None:
        self.capturing, self._stop, self._marked, self._captured = checkpoint, stop, False, False
        self._deadline = self._clock.monotonic() + timeout_s
        self._pool.begin_hold(self._instances)
        self.advance(self._clock.monotonic())

    @property
    def waiting(self) -> bool:
        """Whether something can be gained by looking at its instances again soon."""
        return bool(self.capturing) and not self._captured

    def advance(self, now: float) -> None:
        """Goes as far as the checkpoint under way can go now."""
        if not self.waiting:
            return
        if not self._marked and self._pool.at_rest(self._instances):
            self._marked = True
            for slot in self._others:
                if (link := self._links.get(slot)) is not None:
                    link.send(frames.frame(frames.MARKER, self.number, self.capturing))
        if self._marked and all(self._heard.get(slot, 0) >= self.capturing for slot in self._others):
            self._capture()
        elif now > self._deadline:
            self._answer(None, {}, [], "no batch boundary in time")
            self._go_on()

    def _capture(self) -> None:
        run = self.flow_run
        deltas: dict[str, Any] = {}
        error = ""
        queues: dict[str, Any] = {}
        try:
            run.take_deltas(deltas, self.mine)
        except Exception as problem:  # noqa: BLE001 - an operator's fault is its flow's alone; what was taken is kept
            error = repr(problem)
        for name, entries in run.queues().items():
            if run.places[name].instance.name in self.mine:
                queues[name] = [[entry.source, frames.pack_batch(entry.batch)] for entry in entries]
        ship = run.ship
        mine = ship is not None and any(p.logic is ship and p.instance.name in self.mine for p in run.places.values())
        rows = ship.take() if ship is not None and mine else []
        self._answer(queues, deltas, frames.pack_rows(rows), error)
        self._captured = self._stop
        if not self._stop:
            self._go_on()

    def _answer(self, queues: Any, deltas: dict[str, Any], rows: list[Any], error: str) -> None:
        answer = frames.frame(frames.CAPTURED, self.number, self.capturing, queues, deltas, rows, error)
        self._links[DAEMON].send(answer)

    def _go_on(self) -> None:
        self._over = max(self._over, self.capturing)
        self.capturing = 0
        aside, self._aside = self._aside, []
        self._pool.release(self._instances)
        for origin, frame in aside:
            self.frame(origin, frame)

    def _model(self, operator: str, document: Mapping[str, Any]) -> None:
        for place in self.flow_run.places.values():
            logic = place.logic
            if isinstance(logic, Fused) and operator in logic.predictions.nodes and place.instance.name in self.mine:
                try:
                    logic.predictions.offer(operator, logic.predictions.checked_untrusted(operator, document))
                except DocumentError:
                    continue  # the daemon has checked it by the same code

    # -- figures

    def report(self, now: float) -> dict[str, list[Any]]:
        """By place."""
        places = self.flow_run.places.items()
        return {name: report(place, now).plain() for name, place in places if place.instance.name in self.mine}


def _nowhere(source: int, batch: Batch) -> None:
    """Where the batches of an ended run go."""
