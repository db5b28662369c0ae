"""A flow that runs: its instances, its place in the input, and what a checkpoint takes from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgert.core.batch import Row
from edgert.core.errors import StoreError
from edgert.core.position import Position
from edgert.core.results import Schema, row_columns
from edgert.flow.graph import Flow
from edgert.flow.physical import Fusion, PhysicalInstance, Plan, fields_needed, plan
from edgert.flow.spec import Registry
from edgert.operators.fused import Fused
from edgert.operators.guard import Guard
from edgert.operators.line import Line
from edgert.operators.logic import Build, Logic, Message, Now
from edgert.operators.pipeline import Pipeline
from edgert.operators.sinks import Ship
from edgert.operators.source import Source
from edgert.runtime.instance import Instance, Target
from edgert.runtime.pool import Pool
from edgert.runtime.progress import Progress
from edgert.runtime.queue import Entry, Queue
from edgert.runtime.state import pack_queues, pack_state, unpack_queues, unpack_state

HOLD_S = 2.0
"""A flow whose instances reach no batch boundary within this time gets no checkpoint this time."""
QUEUE_BYTES = 4_194_304
OWED_BYTES = 8_388_608
"""Budget at least of a source at QoS 1 or 2: twice the input at which the gateway stops reading from the broker."""
COMPACT_BYTES = 65_536
"""Deltas are merged into a snapshot when they outgrow this and twice the last snapshot."""


@dataclass(slots=True)
class Captured:
    """What one pause took out of a flow; kept until it is committed."""

    position: Position
    deltas: list[dict[str, Any]]
    """By instance; more than one where an earlier pause could not be brought to its end."""
    rows: list[Row]
    queues: dict[str, list[Entry]]


@dataclass(slots=True)
class CommitForm:
    """The same, packed for the database."""

    position: Position
    deltas: list[bytes]
    queue: bytes
    columns: tuple[str, ...]
    rows: list[list[Any]]


@dataclass(frozen=True, slots=True)
class Place:
    """An instance, or one part of a fused one: what has a name, state and counters of its own."""

    planned: PhysicalInstance
    instance: Instance
    logic: Logic
    part: int = 0

    @property
    def guard(self) -> Guard:
        """Stands around its logic."""
        return self.instance.guards[self.part]

    @property
    def rows_in(self) -> int:
        """Rows (for a source: messages) taken since the start of the process."""
        line = self.instance.logic
        return line.took[self.part] if isinstance(line, Line) else self.instance.counters.rows_in

    @property
    def rows_out(self) -> int:
        """Rows given on since the start of the process."""
        line = self.instance.logic
        return line.gave[self.part] if isinstance(line, Line) else self.instance.counters.rows_out

    @property
    def entrance(self) -> int:
        """The instance's input by which rows come to a part that is not the first."""
        line = self.instance.logic
        return line.entrance(self.part) if isinstance(line, Line) else 0


class FlowRun:
    """Built on the loop; afterwards its state belongs to the pool and, in pauses, to the store thread."""

    def __init__(
        self, flow: Flow, registry: Registry, version: int, epoch: int, progress: Progress, fusion: Fusion = "full"
    ) -> None:
        self.flow = flow
        self.registry = registry
        self.version = version
        self.epoch = epoch
        self.progress = progress
        self.plan: Plan = plan(flow, registry, fusion)
        self.instances = build_instances(self.plan, registry)
        self.places = places_of(self.plan, self.instances)
        self.ship = next((p.logic for p in self.places.values() if isinstance(p.logic, Ship)), None)
        self.schema = schema_of(self.plan)
        self.columns = row_columns(self.schema) if self.schema else ()
        self.latest: deque[Row] = deque(maxlen=5)
        self.rows_shipped = 0
        self.pending: list[Captured] = []
        """Captured, but not committed yet (the commit may have failed: then nothing more is captured until it is)."""
        self.taken: list[dict[str, Any]] = []
        """Deltas of pauses that could not be brought to their end."""
        self.ended = False
        """Drained: what it ships now goes with the end of its state, or not at all. No checkpoint takes it."""
        self._queue_was_empty = True
        self._delta_bytes = 0
        self._snapshot_bytes = 0

    @property
    def all(self) -> tuple[Instance, ...]:
        """Instances, each after all that feed it."""
        return tuple(self.instances.values())

    def sources(self) -> list[tuple[PhysicalInstance, Instance]]:
        return [(p, self.instances[p.name]) for p in self.plan.sources()]

    # -- resume

    def restore(self, blobs: Sequence[bytes], queue: bytes, now: Now, mine: Container[str] | None = None) -> None:
        """Brings state and queues back to the last checkpoint; of all instances, or of those in `mine`. Raises
        `StoreError` where they do not fit the flow."""
        self.stored(blobs, queue)
        for blob in blobs:
            self._apply(blob, self.places, mine)
        for place in self.places.values():
            if isinstance(place.logic, Source):
                place.logic.resumed(now)
        # what waited nearest to the end of a line first: what waits further back is newer, and would move the watermark
        # past the others
        waited = [(*self._entrance(name), entries) for name, entries in unpack_queues(queue, now.monotonic).items()]
        for place, at, entries in sorted(waited, key=lambda item: (-item[0].part, -item[1])):
            if mine is None or place.instance.name in mine:
                for entry in entries:
                    self._enter(place, at, entry, now)

    def stored(self, blobs: Sequence[bytes], queue: bytes) -> None:
        """Notes what the database holds of the flow."""
        self._snapshot_bytes = len(blobs[0]) if blobs else 0
        self._delta_bytes = sum(map(len, blobs[1:]))
        self._queue_was_empty = not queue

    def _apply(self, blob: bytes, places: Mapping[str, Place], mine: Container[str] | None = None) -> None:
        for name, state in unpack_state(blob).items():
            try:
                for place, part in self._state_of(name, state, places):
                    if mine is None or place.instance.name in mine:
                        place.logic.restore(part)
            except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
                raise StoreError(f"the stored state of {name} does not fit its operator: {error!r}") from error

    def _state_of(self, name: str, state: Any, places: Mapping[str, Place]) -> Iterable[tuple[Place, Any]]:
        """Who gets which part of a state. That of a chain is by operator, and its operators may be apart now."""
        place = self._place(name, places)
        if not isinstance(place.logic, Fused) or not isinstance(state, dict):
            return [(place, state)]
        homes = {operator: self._place(operator, places) for operator in state}
        return [(homes[operator], {operator: document}) for operator, document in state.items()]

    def _entrance(self, name: str) -> tuple[Place, int]:
        """The place in front of which something waited at `name`, and before which of its operators."""
        place = self._place(name, self.places)
        first = next(operator for operator in name.split("+") if operator in place.planned.operators)
        at = place.planned.operators.index(first)
        markers = all(self.registry[node.type].keys is not None for node in place.planned.nodes[:at])
        return place, 0 if markers else at

    def _enter(self, place: Place, at: int, entry: Entry, now: Now) -> None:
        """Puts back what waited; if that was in the midst of what is a chain now, behind the rest of the chain."""
        if not at or not isinstance(place.logic, Fused):
            place.instance.queue.append(entry._replace(source=place.entrance) if place.part else entry)
            return
        rest = place.logic.rest(at)
        following = [self._place(output.instance, self.places) for output in place.planned.outputs]
        for emission in rest.process(entry.batch, 0, now):
            for output, behind in zip(place.planned.outputs, following, strict=True):
                source = behind.entrance if behind.part else output.input
                if behind.instance.remote is None:
                    behind.instance.queue.append(Entry(source, emission.batch, entry.put))
                else:
                    behind.instance.remote(source, emission.batch)
        place.logic.drops.update(rest.drops)

    def _place(self, name: str, places: Mapping[str, Place]) -> Place:
        """By name; or, if more or less was fused when it was stored, where its first operator (that is none of the
        markers which vanish) is now."""
        if name in places:
            return places[name]
        for operator in name.split("+"):
            for place in places.values():
                if operator in place.planned.operators:
                    return place
        raise StoreError(f"expected state of {', '.join(places)}, got that of {name} (of another version?)")

    # -- checkpoints (store thread)

    def capture(self, pool: Pool, position: Callable[[Callable[[], None]], None]) -> bool:
        """The pause: stops the flow at a batch boundary, takes what changed, lets it go on.

        `position` runs its argument while nothing can be fed, so that position and queues belong together. False when
        the flow reached no boundary in time. What an operator's `delta` raises is raised, and what the operators before
        it gave is kept for the next capture.
        """
        if not pool.hold(self.all, HOLD_S):
            return False
        try:
            taken: list[tuple[Position, dict[str, list[Entry]]]] = []
            position(lambda: pool.locked(lambda: taken.append((self.progress.position(), self.queues()))))
            deltas: dict[str, Any] = {}
            self.taken.append(deltas)
            self.take_deltas(deltas)
            rows = self.ship.take() if self.ship else []
        finally:
            pool.release(self.all)
        at, queues = taken[0]
        self.pending.append(Captured(at, [d for d in self.taken if d], rows, queues))
        self.taken = []
        return True

    def take_deltas(self, into: dict[str, Any], mine: Container[str] | None = None) -> None:
        """What has changed since the last time, by place, of all instances or those in `mine`. What stands in `into`
        when an operator raises is taken."""
        for name, place in self.places.items():
            if (mine is None or place.instance.name in mine) and (delta := place.logic.delta()) is not None:
                into[name] = delta

    def queues(self) -> dict[str, list[Entry]]:
        """By place: what waits in front of a part that is not the first came there by a checkpoint."""
        queues: dict[str, list[Entry]] = {}
        for name, place in self.places.items():
            entries = list(place.instance.queue.entries)
            if place.part:
                entries = [entry._replace(source=0) for entry in entries if entry.source == place.entrance]
            elif isinstance(line := place.instance.logic, Line):
                entries = [entry for entry in entries if entry.source < line.entrance(1)]
            if entries:
                queues[name] = entries
        return queues

    def drain(self, now: Now, send: Callable[[Instance, Sequence[Message]], None]) -> None:
        """Runs a held flow to its very end on the caller's thread: queues, what windows still hold, a capture.

        For a flow that is replaced or removed: nothing may be fed to it any more.
        """
        self.ended = True
        for instance in self.all:
            instance.hurry()
        for instance in self.all:
            for finish in (False, True):
                turn = instance.finish(now) if finish else instance.run(instance.queue.take_all(), now)
                for target, batch in turn.out:
                    target.instance.queue.append(Entry(target.source, batch))  # comes at once, so no budget applies
                if turn.messages:
                    send(instance, turn.messages)
        rows = self.ship.take() if self.ship else []
        self.pending.append(Captured(self.progress.position(), [], rows, {}))

    def form(self) -> CommitForm | None:
        """All that is pending as one commit; None when there is nothing worth a write to the card."""
        if not self.pending:
            return None
        last = self.pending[-1]
        rows = [row for captured in self.pending for row in captured.rows]
        deltas = [d for c in self.pending for d in c.deltas]
        queue = pack_queues(last.queues)
        if not rows and not deltas and not queue and self._queue_was_empty and last.position == self.progress.committed:
            self.pending.clear()
            return None
        columns = self.columns
        return CommitForm(
            last.position,
            [pack_state(d) for d in deltas],
            queue,
            columns,
            [[row.get(column) for column in columns] for row in rows],
        )

    def committed(self, form: CommitForm) -> None:
        """The database has it."""
        for captured in self.pending:
            self.latest.extend(captured.rows[-5:])
        self.pending.clear()
        self.rows_shipped += len(form.rows)
        self._queue_was_empty = not form.queue
        self._delta_bytes += sum(map(len, form.deltas))

    def wants_compaction(self) -> bool:
        return self._delta_bytes > max(COMPACT_BYTES, 2 * self._snapshot_bytes)

    def compact(self, blobs: Sequence[bytes]) -> bytes:
        """One snapshot that says the same as `blobs`; made from them alone, so the flow is not paused."""
        copies = places_of(self.plan, build_instances(self.plan, self.registry))
        for blob in blobs:
            self._apply(blob, copies)
        state = {name: s for name, place in copies.items() if (s := place.logic.snapshot()) is not None}
        snapshot = pack_state(state)
        self._delta_bytes, self._snapshot_bytes = 0, len(snapshot)
        return snapshot


def build_instances(physical: Plan, registry: Registry) -> dict[str, Instance]:
    """Instances with fresh logic, connected."""
    instances: dict[str, Instance] = {}
    for planned in physical.instances.values():
        logic = make_logic(planned, physical, registry)
        instances[planned.name] = Instance(planned.name, planned.operators, planned.kind, logic, _queue(planned))
    for planned in physical.instances.values():
        for target, port, source in planned.outputs:
            instances[planned.name].outputs.setdefault(port, []).append(Target(instances[target], source))
    return instances


def places_of(physical: Plan, instances: Mapping[str, Instance]) -> dict[str, Place]:
    """By name of the instance or the part, in the plan's order."""
    places = {}
    for planned in physical.instances.values():
        instance = instances[planned.name]
        parts = instance.logic.parts if isinstance(instance.logic, Line) else (instance.logic,)
        for number, (part, logic) in enumerate(zip(planned.parts or (planned,), parts, strict=True)):
            place = places[part.name] = Place(part, instance, logic, number)
            place.guard.flow, place.guard.operator = physical.flow.name, part.name
            place.guard.policy = physical.flow.on_error
    return places


def _queue(planned: PhysicalInstance) -> Queue:
    """Only a source sheds. What an acknowledgement is owed for is not shed: the gateway stops reading before that."""
    if planned.kind != "source":
        return Queue(QUEUE_BYTES, "keep")
    budget = planned.parameters["queue_bytes"]
    return Queue(max(budget, OWED_BYTES) if planned.parameters["qos"] else budget, planned.parameters["overload"])


def make_logic(planned: PhysicalInstance, physical: Plan, registry: Registry) -> Logic:
    """The logic of one planned instance."""
    if planned.parts:
        parts = [make_logic(part, physical, registry) for part in planned.parts]
        between = [part.outputs[0].port for part in planned.parts[:-1]]
        if Pipeline.fits(parts, between):
            return Pipeline(parts, between)
        return Line(parts, between, len(planned.inputs))
    node = planned.nodes[0]
    if planned.kind == "stateless":
        return Fused(planned.nodes, planned.live)
    make = registry[node.type].logic
    if make is None:
        raise TypeError(f"operator type {node.type} has no logic: its specification must say `logic=...`")
    needed = fields_needed(physical.flow, registry, node.name) if planned.kind == "source" else None
    ports = frozenset(port for _, port, _ in planned.outputs)
    logic: Logic = make(Build(node, physical.flow, needed, planned.keys, len(planned.inputs), ports))
    return logic


def schema_of(physical: Plan) -> Schema | None:
    """What the contributions of the flow look like; None when it ships nothing."""
    flow = physical.flow
    ship = next((node for node in flow.nodes.values() if node.type == "ship"), None)
    if ship is None:
        return None
    parts = [part for planned in physical.instances.values() for part in planned.parts or (planned,)]
    window = next(part for part in parts if part.operators == ship.inputs)
    aggregates: Iterable[Any] = window.parameters["aggregates"]
    return Schema(window.parameters["size_s"], tuple(window.keys), tuple((a.name, a.function) for a in aggregates))
