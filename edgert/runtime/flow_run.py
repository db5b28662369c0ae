"""A flow that runs: its instances, its position in the input, and what a checkpoint takes from it."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from edgert.core.batch import Batch, Row
from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.errors import DamagedError
from edgert.core.results.result_schema import row_columns
from edgert.core.results.results import Drop
from edgert.flow.graph import Flow
from edgert.flow.physical import Fusion, plan
from edgert.flow.plan import Assignment, Location, PhysicalInstance, Plan, uncopied
from edgert.flow.spec import Registry
from edgert.operators.base.error_boundary import as_errors
from edgert.operators.base.logic import Now
from edgert.operators.base.memory import MemoryBudget
from edgert.operators.sinks import Ship
from edgert.runtime.checkpoint import restore
from edgert.runtime.checkpoint.capture import Captured, StoredSize
from edgert.runtime.checkpoint.departures import Departure, departure, first_of, pack
from edgert.runtime.checkpoint.packing import pack_queues, pack_state, unpack_queues, unpack_state
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.instance.build import Built, build, schema_of
from edgert.runtime.instance.edges import Target
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from edgert.runtime.instance.report import drops_of
from edgert.runtime.interpreter import switching
from edgert.runtime.latest import LatestWindow
from edgert.runtime.pool.pool import Pool

log = logging.getLogger(__name__)

HOLD_S = 2.0
"""Seconds in which all instances must reach a batch boundary; otherwise the flow gets no checkpoint this time."""
SOON_S, LATE_S = 0.0005, 0.05
"""Switch intervals of the interpreter, seconds: while a pause waits for locks, and while it copies changes. With the
default each lock costs 5 ms more where much comes in."""
_ANYWHERE: Final = Location("")


class FlowRun:
    """Built on the loop; afterwards its state belongs to the pool and, in pauses, to the store thread."""

    def __init__(
        self,
        flow: Flow,
        registry: Registry,
        version: int,
        epoch: int,
        progress: Progress,
        fusion: Fusion = "full",
        fission: bool = True,
        gateway: str = "",
        assignment: Assignment = MappingProxyType({}),
        plan_number: int = 0,
        here: Callable[[Location], bool] | None = None,
    ) -> None:
        """`gateway`: the board that this is; an instance without a location runs on it. `here`: whether the instances
        at a location of this board run in this process; by default all do."""
        self.flow = flow
        self.registry = registry
        self.version = version
        self.epoch = epoch
        self.progress = progress
        self.fusion, self.fission = fusion, fission
        self.gateway, self.assignment = gateway, assignment
        self.plan: Plan = plan(flow, registry, fusion, fission=fission, assignment=assignment, number=plan_number)
        self.memory = MemoryBudget()
        """Its budget for what the operators in this process keep by key; the host makes it a part of its own."""
        self._build(here or (lambda location: True))
        self.schema = schema_of(self.plan) if self._ships_here() else None
        self.columns = row_columns(self.schema) if self.schema else ()
        self.latest = LatestWindow([name for name, _ in self.schema.keys] if self.schema else ())
        self.rows_shipped = 0
        self.pending: list[Captured] = []
        """Captured, but not committed yet (the commit may have failed: then nothing more is captured until it is)."""
        self.taken: list[dict[str, Any]] = []
        """Deltas of pauses that could not be brought to their end."""
        self.departures: list[Departure] = []
        """For other gateways, since the last capture."""
        self.dropped: Mapping[tuple[str, str], int] = {}
        """Drops by stage and reason: from the start of the process to the last capture. The counts only decrease if an
        uncommitted capture is given up."""
        self.ended = False
        """True once the flow has run to its end. Results shipped later are written only by the last checkpoint."""
        self.rewrite = False
        """True if the stored state is damaged: the next capture takes all state anew."""
        self.pause_s = 0.0
        """How long the last capture stopped it."""
        self.stands_since = 0.0
        """When it was stopped for another plan, or for good; monotonic seconds."""
        self._stopped: dict[Instance, list[Entry]] = {}
        """Queue entries of instances that a capture stopped, by instance."""
        self._kept: dict[Instance, int] = {}
        """How much of what its sources keep belongs to the last capture, or spill."""
        self.size = StoredSize()
        self.restored = 0
        """Pieces of stored state, the first ones, that the instances here have before `restore` is called."""

    def _build(self, here: Callable[[Location], bool]) -> None:
        names = {i.name for i in self.plan.instances.values() if self.on_board(i) and here(i.location or _ANYWHERE)}
        self.built = build(self.plan, self.registry, names)
        self.instances, self.stages = self.built.instances, self.built.stages
        away = {name for name, planned in self.plan.instances.items() if not self.on_board(planned)}
        for name in away:
            self.instances[name].remote = partial(self.depart, self.plan.instances[name])
        self.local = tuple(instance for name, instance in self.instances.items() if name not in away)
        """Instances of this board, each after all that feed it."""
        self.mine = frozenset(instance.name for instance in self.local) if away else None
        """Their names; None where this board runs all."""
        self.ships = [p.logic for p in self.stages.values() if isinstance(p.logic, Ship)]
        for stage in self.stages.values():
            if stage.instance.name in names and stage.logic.memory:
                self.memory.take_in(stage.logic.memory)

    def depart(self, planned: PhysicalInstance, target: Target[Instance], batch: Batch) -> None:
        """A batch for an instance of another gateway. On any thread."""
        self.departures.append(departure(planned, self.registry, target, batch))

    def take_departures(self) -> list[Departure]:
        """Returns the departures since the last call. The instances that give them must stand still."""
        taken, self.departures = self.departures, []
        return taken

    def on_board(self, instance: PhysicalInstance) -> bool:
        """True if this board runs the instance."""
        return instance.location is None or instance.location.gateway == self.gateway

    def neighbours(self) -> tuple[frozenset[str], frozenset[str]]:
        """(gateways from which batches come to this board, gateways to which batches go)."""
        return self.plan.neighbours(self.gateway)

    def entrance(self, operator: str) -> Instance | None:
        """The instance of this board that begins with the operator copy, markers aside; None where there is none."""
        name, copy = uncopied(operator)
        for instance_name, planned in self.plan.instances.items():
            if name == first_of(planned.nodes, self.registry) and planned.copy == copy and self.on_board(planned):
                return self.instances[instance_name]
        return None

    def takes(self, instance: Instance, source: int, producer: int) -> bool:
        """True if the instance has this input, and at least `producer` + 1 instances feed it."""
        feeders = self.plan.instances[instance.name].feeders
        return 0 <= source < len(feeders) and 0 <= producer < feeders[source]

    def _ships_here(self) -> bool:
        sinks = (i for i in self.plan.instances.values() if any(node.type == "ship" for node in i.nodes))
        return any(map(self.on_board, sinks))

    def leave(self, assignment: Assignment) -> None:
        """Turns the run into one whose instances are all in other processes, at these locations. Its instances are
        built anew, with only as much logic as this process needs. To be called before anything uses the instances; that
        the logic can be built is known by then."""
        self.plan = plan(
            self.flow, self.registry, self.fusion, fission=self.fission, assignment=assignment, number=self.plan.number
        )
        self._build(lambda location: False)
        self.restored = 0
        gc.collect(1)  # the logic stands in circles, and what is older than a moment is looked at each ten minutes only

    @property
    def all(self) -> tuple[Instance, ...]:
        """Instances, each after all that feed it."""
        return tuple(self.instances.values())

    def sources(self) -> list[tuple[PhysicalInstance, tuple[Instance, ...]]]:
        """Each source of this board as planned (of several copies the first), and its instances."""
        sets = [copies for copies in self.plan.sets() if copies[0].kind == "source" and self.on_board(copies[0])]
        return [(copies[0], tuple(self.instances[copy.name] for copy in copies)) for copies in sets]

    def heir(self, instance: Instance) -> Instance:
        """The instance of this plan that begins with the operator copy with which `instance`, of another plan of the
        flow, begins."""
        first, (_, copy) = instance.operators[0], uncopied(instance.name)
        return next(i for i in self.all if i.operators[0] == first and uncopied(i.name)[1] == copy)

    # -- resume

    @as_errors()
    def restore(self, blobs: Sequence[bytes], queue: bytes, now: Now, mine: Container[str] | None = None) -> None:
        """Brings state and queues back to the last checkpoint; of all instances, or of those in `mine`. Raises
        `StoreError` where they do not fit the flow."""
        mine = self.mine if mine is None else mine
        states, queues = restore.states_of(blobs[self.restored :]), unpack_queues(queue, now.monotonic)
        for state in states:
            restore.apply(state, self.built, mine)
        restore.resumed(self.built, queues, now, mine)
        self.stored(blobs, queue)

    @as_errors()
    def restore_state(self, blobs: Sequence[bytes]) -> None:
        """Gives the instances here their part of stored state before `restore` is called; `restored` tells that of how
        much of it. Raises as `restore`."""
        for state in restore.states_of(blobs):
            restore.apply(state, self.built, self.mine)

    def stored(self, blobs: Sequence[bytes], queue: bytes) -> None:
        """Notes what the database holds of the flow."""
        self.size.read(blobs, queue)

    # -- checkpoints (store thread)

    def capture(
        self,
        pool: Pool,
        feeding: AbstractContextManager[Any],
        timeout_s: float | None = None,
        *,
        stop: bool = False,
    ) -> bool:
        """The pause: stops the flow at a batch boundary, takes what changed, lets it go on; with `stop` it stands, with
        empty queues, until `go_on` or a run that succeeds it.

        `feeding` is the lock under which the flow is fed: position and queues belong together. False when the flow
        reached no boundary within `timeout_s` (None: `HOLD_S`). What an operator's `delta` raises is raised, and what
        the operators before it gave is kept for the next capture.
        """
        with switching(SOON_S):
            if not pool.hold(self.local, HOLD_S if timeout_s is None else timeout_s):
                return False
            began = time.perf_counter()
            stands = False
            try:
                with feeding, pool.lock:
                    at, queues = self.progress.position(), self.queues()
                    self.dropped = self.drops()
                    self._kept = {instance: len(instance.delivery.kept) for instance in self.local}
                    if stop:
                        self._stopped = {instance: instance.queue.take_all() for instance in self.local}
                deltas: dict[str, Any] = {}
                self.taken.append(deltas)
                with switching(LATE_S):
                    self.take_deltas(deltas)
                    if whole := self.rewrite:
                        # packed at once: it may share what changes when the flow goes on
                        self.taken = [unpack_state(pack_state(self.snapshot(self.built, self.mine)))]
                    rows = [row for ship in self.ships for row in ship.take()]
                    leaving = self.take_departures()
                stands = stop
            finally:
                if not stands:
                    self.go_on(pool)
                self.pause_s = time.perf_counter() - began
        self.pending.append(Captured(at, [d for d in self.taken if d], rows, queues, whole, leaving))
        self.taken = []
        self.rewrite = False
        return True

    def stand(self, pool: Pool) -> None:
        """Stops the flow before any turn of it has begun; its queues are empty until `go_on`."""
        pool.begin_hold(self.local)
        self._stopped = {instance: instance.queue.take_all() for instance in self.local}

    def go_on(self, pool: Pool) -> None:
        """Ends the pause of a capture, or of `stand`."""
        with pool.lock:
            for instance, entries in self._stopped.items():
                instance.queue.put_back(entries)
            self._stopped = {}
        pool.release(self.local)

    def take_input(self) -> tuple[Position, dict[str, list[Entry]]]:
        """Returns (position, entries by stage) of the input fed since the last checkpoint that is owed an
        acknowledgement. To be called while nothing can be fed, and followed by `input_is_safe` when the entries are in
        the database."""
        self._kept = {instance: len(instance.delivery.kept) for instance in self.all}
        found = {
            name: [Entry(0, batch) for batch in stage.instance.delivery.kept]
            for name, stage in self.stages.items()
            if not stage.number and stage.instance.delivery.kept
        }
        return self.progress.position(), found

    def input_is_safe(self) -> None:
        """Notes that the input kept by the sources, up to the last capture or `take_input`, is in the database."""
        for instance, number in self._kept.items():
            del instance.delivery.kept[:number]
        self._kept = {}

    @as_errors()
    def take_deltas(self, into: dict[str, Any], mine: Container[str] | None = None) -> None:
        """Adds the changes of state since the last call to `into`, by stage, of all instances or those in `mine`. If an
        operator raises, the changes already in `into` are taken."""
        mine = self.mine if mine is None else mine
        for name, stage in self.stages.items():
            if (mine is None or stage.instance.name in mine) and (delta := stage.logic.delta()) is not None:
                into[name] = delta

    def queues(self) -> dict[str, list[Entry]]:
        """Queue entries by stage. Those of a stage that is not the first of its instance were restored from a
        checkpoint."""
        queues: dict[str, list[Entry]] = {}
        for name, stage in self.stages.items():
            numbers = stage.entrances
            entries = [
                entry._replace(source=entry.source - numbers.start) if numbers.start else entry
                for entry in stage.instance.queue.entries
                if entry.source in numbers
            ]
            if entries:
                queues[name] = entries
        return queues

    def drops(self) -> dict[tuple[str, str], int]:
        """Drops in this process since its start, by stage and reason."""
        stages = self.stages.items()
        return {(name, reason): rows for name, stage in stages for reason, rows in drops_of(stage).items()}

    def capture_end(self, handed: dict[str, Any] | None = None) -> None:
        """Takes what the flow gave at its end. `handed`: the state with which its next version begins, instead of its
        own; None: it has no state any more."""
        rows = [row for ship in self.ships for row in ship.take()]
        at, whole, departures = self.progress.position(), handed is not None, self.take_departures()
        self.pending.append(Captured(at, [handed] if handed else [], rows, {}, whole, departures))
        self.dropped = self.drops()

    def form(self, drops: Sequence[Drop] = ()) -> Checkpoint | None:
        """One checkpoint of all that is pending, with what is to be said of `dropped`; None when there is nothing worth
        a write to the card."""
        if not self.pending:
            return None
        last = self.pending[-1]
        rows = [row for captured in self.pending for row in captured.rows]
        deltas, whole = self.pending_state()
        queue = pack_queues(last.queues)
        links = pack([one for captured in self.pending for one in captured.departures])
        nothing = not (rows or deltas or queue or drops or links or self.size.queue)
        if nothing and last.position == self.progress.committed:
            self.pending.clear()
            return None
        packed = [pack_state(d) for d in deltas]
        return Checkpoint(
            self.flow.name, last.position, packed, queue, self.columns, self.listed(rows),
            drops=drops, whole=whole, links=links, captures=len(self.pending),
        )  # fmt: skip

    def pending_state(self) -> tuple[list[dict[str, Any]], bool]:
        """Deltas of what is pending, as far as they count, and whether they say everything."""
        whole = max((at for at, c in enumerate(self.pending) if c.whole), default=None)
        return [delta for c in self.pending[whole or 0 :] for delta in c.deltas], whole is not None

    def listed(self, rows: Sequence[Row]) -> list[list[Any]]:
        """Contributions as lists in the order of `columns`."""
        return [[row.get(column) for column in self.columns] for row in rows]

    def left_ahead(self, rows: Sequence[Row]) -> None:
        """The database has these results, ahead of the checkpoint that will cover them."""
        self.latest.add(rows)
        self.rows_shipped += len(rows)

    def committed(self, form: Checkpoint) -> None:
        """The database has it."""
        for captured in self.pending[: form.captures]:
            self.latest.add(captured.rows)
        del self.pending[: form.captures]
        self.input_is_safe()
        self.rows_shipped += len(form.rows)
        self.size.committed(form)

    def damaged(self, error: DamagedError) -> None:
        """Notes that the stored state is damaged: the next capture takes all state anew."""
        if not self.rewrite:
            log.error("flow %s: what is stored of its state is damaged, unlike the state: %s", self.flow.name, error)
        self.rewrite = True

    def wants_compaction(self) -> bool:
        return not self.rewrite and self.size.wants_compaction()

    @as_errors()
    def compact(self, blobs: Sequence[bytes]) -> bytes:
        """One snapshot that says the same as `blobs`; made from them alone, so the flow is not paused."""
        again = build(self.plan, self.registry)
        for state in restore.states_of(blobs):
            restore.apply(state, again)
        return pack_state(self.snapshot(again, self.mine))

    @staticmethod
    @as_errors()
    def snapshot(built: Built, mine: Container[str] | None = None) -> dict[str, Any]:
        """All state, by stage, of all instances or those in `mine`."""
        stages = {n: stage for n, stage in built.stages.items() if mine is None or stage.instance.name in mine}
        return {name: s for name, stage in stages.items() if (s := stage.logic.snapshot()) is not None}
