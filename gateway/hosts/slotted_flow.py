"""A flow in slots, as its daemon keeps it: locations of its instances, input since its last checkpoint, answers and
reports of the slots."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from edgert.core.batch import Batch, RawBatch, Row
from edgert.core.checkpoint.position import Position
from edgert.flow.plan import DAEMON, Assignment, Location, PhysicalInstance, copy_name
from edgert.links import frames
from edgert.runtime.checkpoint.capture import Captured
from edgert.runtime.checkpoint.departures import Departure, departure
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.edges import Target
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from edgert.runtime.instance.report import Report

log = logging.getLogger(__name__)

KEPT_BYTES: Final = 4_194_304
"""Bytes of input without an acknowledgement (QoS 0) that are kept for replay. Input that is owed an acknowledgement is
always kept, and bounded by the point at which the gateway stops reading. No batch has both."""
STOOD_STILL: Final = "change of plan, QoS 0"
"""The reason of drops for such input that came while the flow stood still for another plan, and was not kept."""

PlacementFunction = Callable[[Mapping[str, int], Sequence[tuple[str, str]], int], Mapping[str, Sequence[int]]]
"""See `edgert.scheduling.locality_fairness`."""


@dataclass(slots=True)
class Fed:
    """One batch that was fed, kept so that it can be fed again."""

    instance: Instance
    source: int
    batch: Batch | RawBatch | None
    """None for a batch that was too large to keep. Neighbouring entries without a batch are merged."""
    number: int
    """How many had been fed by then, in all."""
    lost: Counter[Instance] | None = None
    """Then: the messages that were in it."""
    producer: int = 0
    """For a batch from another gateway: the number of the copy that sent it, among those that feed that input."""

    @property
    def spare(self) -> bool:
        """True if no acknowledgement is owed for the batch. For a batch of another gateway the sender is owed one."""
        return isinstance(self.batch, RawBatch) and not self.batch.owed


class SlotAnswer(NamedTuple):
    """A slot's answer to a checkpoint."""

    queues: dict[str, Any] | None
    """None if the slot reached no batch boundary."""
    reports: dict[str, Report]
    fault: str
    state: dict[str, Any]
    """All of it, if asked for."""


@dataclass(eq=False, slots=True)
class SlottedFlow:
    """A flow in slots. `lock` guards all but what the loop alone uses."""

    run: FlowRun
    where: list[int]
    """Slot of each instance, in the plan's order; `DAEMON` for those of other gateways."""
    number: int = 0
    """The number of the present life; see `edgert.links.frames`."""
    down: bool = False
    """A slot of it died; it goes on when it was brought back to its checkpoint."""
    deaths: int = 0
    """Deaths of slots while they worked for the flow, since it last lived for long."""
    since: float = 0.0
    """When its present life began, monotonic seconds."""
    lock: threading.Condition = field(default_factory=threading.Condition)
    fed: deque[Fed] = field(default_factory=deque)
    """Since the last committed checkpoint, oldest first."""
    fed_in_all: int = 0
    """How many were ever put into `fed`."""
    kept_bytes: int = 0
    """Bytes of the batches in `fed` for which no acknowledgement is owed."""
    marks: list[int] = field(default_factory=list)
    """Number of all batches fed by the time of each capture that is not committed yet."""
    most_kept_bytes: int = KEPT_BYTES
    spilling: int = 0
    """How many had been fed in all when `spill` was called last."""
    checkpoint: int = 0
    at: Position = Position()
    """The position of the checkpoint under way."""
    asked: float = 0.0
    """When the slots were asked for that, on the performance counter."""
    rewriting: bool = False
    """True if the checkpoint under way takes all state anew, since the stored state is damaged."""
    answers: dict[int, SlotAnswer] = field(default_factory=dict)
    """Answers to the checkpoint under way, by slot."""
    rows: list[Row] = field(default_factory=list)
    """To be shipped with the next capture that is whole."""
    departures: list[Departure] = field(default_factory=list)
    """For other gateways, to leave with the next capture that is whole."""
    departing: dict[int, list[Departure]] = field(default_factory=dict)
    """Departures by slot since each slot's last answer: the state that the answer tells of still holds what they were
    made of."""
    results: dict[int, list[Row]] = field(default_factory=dict)
    """Results since each slot's last answer, by slot, of an at-least-once flow: they may leave before the capture."""
    drops: Counter[tuple[Instance, str]] = field(default_factory=Counter)
    """Messages that reached no slot, or were lost with one, by (instance, reason)."""
    reports: dict[str, Report] = field(default_factory=dict)
    """Reports of the present life, by stage, as are the next two attributes."""
    captured: dict[str, Report] = field(default_factory=dict)
    """At the last capture that was whole."""
    committed: dict[str, Report] = field(default_factory=dict)
    """At the last one that was committed: what was counted since is counted again with what is fed again."""
    before: dict[str, Report] = field(default_factory=dict)
    """Sum of the lives before, by stage, up to the checkpoint from which the present life began."""
    shown: dict[str, Report] = field(default_factory=dict)
    """Reports shown when the present life began, by stage. Figures do not go back with the flow: they stand still until
    the new ones pass them. For shed rows, which depend on timing, this is an upper bound."""

    @property
    def slots(self) -> set[int]:
        return set(self.where) - {DAEMON}

    def keep(self, instance: Instance, source: int, batch: Batch | RawBatch, producer: int = 0) -> None:
        """Keeps a batch that is fed."""
        self.fed_in_all += 1
        fed = Fed(instance, source, batch, self.fed_in_all, producer=producer)
        self.fed.append(fed)
        if fed.spare:
            self.kept_bytes += batch.size
            if self.kept_bytes > self.most_kept_bytes:
                self._forget()

    def depart(self, slot: int, index: int, source: int, producer: int, batch: Batch | RawBatch) -> None:
        """Keeps a batch that a slot gave for an instance of another gateway, until the slot's next answer."""
        planned = self.run.plan.instances[list(self.run.plan.instances)[index]]
        assert isinstance(batch, Batch)
        target = Target(self.run.instances[planned.name], source, producer)
        with self.lock:
            self.departing.setdefault(slot, []).append(departure(planned, self.run.registry, target, batch))

    def _forget(self) -> None:
        """Forgets the older half of the batches for which no acknowledgement is owed."""
        left: deque[Fed] = deque()
        for fed in self.fed:
            if self.kept_bytes > self.most_kept_bytes // 2 and fed.batch is not None and fed.spare:
                self.kept_bytes -= fed.batch.size
                fed.lost, fed.batch = Counter({fed.instance: len(fed.batch)}), None
            last = left[-1] if left else None
            if last is None or last.lost is None or fed.lost is None or self._parted(last, fed):
                left.append(fed)
            else:
                last.number = fed.number
                last.lost += fed.lost
        self.fed = left

    def _parted(self, one: Fed, other: Fed) -> bool:
        """True if a capture has one of the two batches and not the other."""
        return any(one.number <= mark < other.number for mark in self.marks)

    def mark(self, stop: bool = False) -> None:
        """Begins a capture of all input until now. With `stop` the flow stands still after it."""
        self.checkpoint += 1
        self.at, self.asked = self.run.progress.position(), time.perf_counter()
        self.answers = {}
        self.marks.append(self.fed_in_all)
        # all state may be too much for the time that there is: then the next capture takes what has changed
        self.rewriting = self.run.rewrite and (stop or not self.rewriting)

    def since_mark(self) -> list[Fed]:
        """The batches fed since the last capture."""
        return [fed for fed in self.fed if fed.number > self.marks[-1]]

    def trim(self) -> None:
        """Forgets batches of committed captures; keeps those of pending ones."""
        last = len(self.marks) - len(self.run.pending)
        committed, self.marks = self.marks[:last], self.marks[last:]
        if committed and not self.marks:
            self.committed = self.captured
        while committed and self.fed and self.fed[0].number <= committed[-1]:
            fed = self.fed.popleft()
            if fed.batch is not None and fed.spare:
                self.kept_bytes -= fed.batch.size

    def spill(self, feeding: AbstractContextManager[Any]) -> tuple[Position, dict[str, list[Entry]]]:
        """See `Checkpoints.spill`."""
        stage_of = {stage.instance: name for name, stage in self.run.stages.items() if not stage.number}
        found: dict[str, list[Entry]] = {}
        with feeding, self.lock:
            self.spilling = self.fed_in_all
            for fed in self.fed:
                if fed.batch is not None and fed.batch.owed:
                    found.setdefault(stage_of[fed.instance], []).append(Entry(0, fed.batch))
            return self.run.progress.position(), found

    def spilled(self) -> None:
        """Forgets the spilled input, which the database has now."""
        with self.lock:
            # of links nothing is spilled: what is not committed is sent again
            self.fed = deque(f for f in self.fed if f.number > self.spilling or f.batch is None or not f.batch.owed)

    def answer(
        self, slot: int, checkpoint: int, answer: SlotAnswer, deltas: dict[str, Any], rows: Sequence[Row]
    ) -> None:
        """Takes a slot's answer to a checkpoint. An answer that comes too late does not count for that checkpoint, but
        its state changes and results were taken out of the flow and are kept for the next one."""
        self.run.taken.append(deltas)
        self.rows += [*self.results.pop(slot, ()), *rows]
        self.departures += self.departing.pop(slot, ())
        if checkpoint == self.checkpoint:
            self.answers[slot] = answer
            self.lock.notify_all()

    def answered(self) -> bool:
        """True if no more answers can come to the checkpoint under way."""
        return self.down or self.answers.keys() == self.slots

    def whole(self) -> bool:
        """True if every slot gave its part."""
        given = (answer.queues is not None and not answer.fault for answer in self.answers.values())
        return not self.down and self.answers.keys() == self.slots and all(given)

    def take(self) -> None:
        """Makes the checkpoint under way the pending one: all its parts are there."""
        run, answers = self.run, self.answers.values()
        queues = {name: found for answer in answers if answer.queues for name, found in answer.queues.items()}
        entries = {name: [_entry(packed) for packed in found] for name, found in queues.items()}
        deltas = [answer.state for answer in answers] if self.rewriting else run.taken
        changed = [delta for delta in deltas if delta]
        leaving, self.departures = self.departures, []
        run.pending.append(Captured(self.at, changed, self.rows, entries, self.rewriting, leaving))
        run.taken, self.rows = [], []
        run.rewrite = run.rewrite and not self.rewriting
        self.captured = {name: report for answer in answers for name, report in answer.reports.items()}
        self.recount()

    def recount(self) -> None:
        """Adds to the pending capture the drops since then that are not in the slots' reports."""
        self.run.dropped = self._dropped()

    def _dropped(self) -> dict[tuple[str, str], int]:
        """The captured drops of the flow over all its lives, as `FlowRun.dropped`."""
        found: dict[tuple[str, str], int] = {}
        for name in self.run.stages:
            report = self.captured.get(name, Report()).after(self.before.get(name, Report()))
            found |= {(name, reason): rows for reason, rows in self._all_drops(name, report).items()}
        return found

    def ends(self, local: FlowRun) -> int:
        """Takes drops and results of `local`, the run that the daemon brought to its end. Returns how many messages are
        lost: fed since the last capture, and not kept."""
        with self.lock:
            lost = self.lose(self.since_mark())
            self.run.dropped = dict(Counter(self._dropped()) + Counter(local.dropped))
        self.run.ended = True
        self.run.pending += local.pending
        return lost

    def faults(self) -> list[str]:
        """The reasons why slots that came to a batch boundary could not give their part."""
        return [answer.fault for answer in self.answers.values() if answer.queues is not None and answer.fault]

    def began_anew(self) -> int:
        """Records that the flow is at its last checkpoint again. Returns the number of messages lost: fed since then,
        and not kept."""
        self.run.pending.clear()
        self.run.taken.clear()
        self.rows.clear()
        self.departures.clear()
        self.departing.clear()
        self.results.clear()
        self.marks.clear()
        self.shown = {name: self._counted(name) for name in self.run.stages}
        for name, report in self.committed.items():
            self.before[name] = report.after(self.before.get(name, Report()))
        self.reports, self.captured, self.committed = {}, {}, {}
        lost = self.lose(self.fed)
        self.fed = deque(fed for fed in self.fed if fed.batch is not None)
        return lost

    def lose(self, entries: Iterable[Fed]) -> int:
        """Counts the messages in `entries` that were not kept, though the flow needs them now."""
        before = self.drops.total()
        for fed in entries:
            for instance, messages in (fed.lost or {}).items():
                self.drops[instance, "lost with a slot"] += messages
        return self.drops.total() - before

    def _counted(self, name: str) -> Report:
        counted = self.reports.get(name, Report()).after(self.before.get(name, Report()))
        return counted.at_least(self.shown[name]) if name in self.shown else counted

    def report(self, name: str) -> Report:
        """The report of the stage `name`, over all lives of the flow."""
        found = self._counted(name)
        found.drops = self._all_drops(name, found)
        return found

    def _all_drops(self, name: str, found: Report) -> dict[str, int]:
        """The drops of a report, together with those that the daemon counted itself for the same stage."""
        stage, drops = self.run.stages[name], Counter(found.drops)
        drops += stage.instance.delivery.not_taken(stage.number)
        if not stage.number:
            drops += Counter({reason: n for (whose, reason), n in self.drops.items() if whose is stage.instance})
        return dict(+drops)


def assign(run: FlowRun, assign_sets: PlacementFunction, slots: Sequence[int]) -> Assignment:
    """Returns a location for every operator copy of a flow: that of the run's assignment, else the one that its
    document asks for, else that of `assign_sets`. `slots`: in the order in which they are filled."""
    sets = [copies for copies in run.plan.sets() if run.on_board(copies[0])]
    at = scheduled(run.flow.name, sets, assign_sets, slots)
    for copy in (copy for copies in sets for copy in copies):
        if copy.location is not None and _exists(copy.location.slot, slots, run.flow.name, copy.name):
            at[copy.name] = copy.location.slot
    return {**run.assignment, **{
        copy_name(operator, copy.copy): Location(run.gateway, at[copy.name])
        for copies in sets
        for copy in copies
        for operator in copy.operators
    }}  # fmt: skip


def scheduled(
    flow: str, sets: Sequence[Sequence[PhysicalInstance]], assign_sets: PlacementFunction, slots: Sequence[int]
) -> dict[str, int]:
    """Returns the slot of each instance by name: the one that the document asks for, else by `assign_sets`. `sets`:
    the copies of each instance together; `slots`: in the order in which they are filled."""
    set_of = {copy.name: copies[0].name for copies in sets for copy in copies}
    edges = dict.fromkeys(
        (copies[0].name, set_of[o.instance]) for copies in sets for o in copies[0].outputs if o.instance in set_of
    )
    placed = assign_sets({copies[0].name: len(copies) for copies in sets}, list(edges), len(slots))
    at = {copy.name: slots[placed[copies[0].name][n]] for copies in sets for n, copy in enumerate(copies)}
    for copies in sets:
        node = max(copies[0].nodes, key=lambda node: node.slot)
        if _exists(node.slot, slots, flow, node.name):
            at |= {copy.name: (node.slot + n) % len(slots) for n, copy in enumerate(copies)}
    return at


def _exists(slot: int, slots: Sequence[int], flow: str, operator: str) -> bool:
    if slot >= len(slots):
        log.warning(
            "flow %s: operator %s is to run in slot %d, and there are only %d, counted from 0: it runs where "
            "pool.placement says", flow, operator, slot, len(slots),
        )  # fmt: skip
    return 0 <= slot < len(slots)


def _entry(packed: Sequence[Any]) -> Entry:
    source, producer, batch = packed
    return Entry(source, frames.unpack_batch(batch), producer=producer)
