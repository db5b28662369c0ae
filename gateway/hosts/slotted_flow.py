"""A flow in slots, as its daemon keeps it: where its instances are, what was fed to it since its last checkpoint, what
the slots have said of it."""

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
from edgert.core.position import Position
from edgert.flow.plan import DAEMON, Assignment, Location, PhysicalInstance, copy_name
from edgert.links import frames
from edgert.runtime.captured import Captured
from edgert.runtime.departures import Departure
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from edgert.runtime.instance.report import Report

log = logging.getLogger(__name__)

KEPT_BYTES: Final = 4_194_304
"""Input that nobody is owed an acknowledgement for (QoS 0) is kept for replay only up to this; what is owed one is kept
in any case, and bounded by the point at which the gateway stops reading. No batch has both."""


Place = Callable[[Mapping[str, int], Sequence[tuple[str, str]], int], Mapping[str, Sequence[int]]]
"""See `edgert.scheduling.locality_fairness`."""


@dataclass(slots=True)
class Fed:
    """What was fed, for the case that it must be fed again."""

    instance: Instance
    source: int
    batch: Batch | RawBatch | None
    """None: it would have been too much to keep. Neighbours without become one."""
    number: int
    """How many had been fed by then, in all."""
    lost: Counter[Instance] | None = None
    """Then: the messages that were in it."""
    producer: int = 0
    """Of a batch from another gateway: which of the copies that feed that input gave it."""

    @property
    def spare(self) -> bool:
        """Whether nobody is owed an acknowledgement for it. Of another gateway's batch the sender is."""
        return isinstance(self.batch, RawBatch) and not self.batch.owed


class Answer(NamedTuple):
    """What a slot has said to a checkpoint."""

    queues: dict[str, Any] | None
    """None: it came to no batch boundary."""
    reports: dict[str, Report]
    fault: str
    state: dict[str, Any]
    """All of it, if asked for."""


@dataclass(eq=False, slots=True)
class Hosted:
    """A flow in slots. `lock` guards all but what the loop alone uses."""

    run: FlowRun
    where: list[int]
    """Slot of each instance, in the plan's order; `DAEMON` for those of other gateways."""
    number: int = 0
    """Of its present life; see `edgert.links.frames`."""
    down: bool = False
    """A slot of it died; it goes on when it was brought back to its checkpoint."""
    deaths: int = 0
    """Of its slots while they worked for it, since it last lived for long."""
    since: float = 0.0
    """When its present life began, monotonic seconds."""
    lock: threading.Condition = field(default_factory=threading.Condition)
    fed: deque[Fed] = field(default_factory=deque)
    """Since the last committed checkpoint, oldest first."""
    fed_in_all: int = 0
    """How many were ever put into `fed`."""
    kept_bytes: int = 0
    """In `fed`, of what nobody is owed an acknowledgement for."""
    marks: list[int] = field(default_factory=list)
    """Of captures not committed yet: how many had been fed in all by then."""
    spilling: int = 0
    """How many had been fed in all when `spill` was called last."""
    checkpoint: int = 0
    at: Position = Position()
    """Of the checkpoint under way."""
    asked: float = 0.0
    """When the slots were asked for that, on the performance counter."""
    rewriting: bool = False
    """Whether the slots are to give all state for the checkpoint under way: what is stored of it is damaged."""
    answers: dict[int, Answer] = field(default_factory=dict)
    """By slot, of the checkpoint under way."""
    rows: list[Row] = field(default_factory=list)
    """To be shipped with the next capture that is whole."""
    departures: list[Departure] = field(default_factory=list)
    """For other gateways, since the last capture that is whole."""
    results: dict[int, list[Row]] = field(default_factory=dict)
    """By slot, what it has said since its last answer, of an at-least-once flow: it may leave ahead of that capture."""
    drops: Counter[tuple[Instance, str]] = field(default_factory=Counter)
    """Messages that did not come as far as a slot, or were lost with one, by whose they were and reason."""
    reports: dict[str, Report] = field(default_factory=dict)
    """By place, of the present life; so are the next two."""
    captured: dict[str, Report] = field(default_factory=dict)
    """At the last capture that was whole."""
    committed: dict[str, Report] = field(default_factory=dict)
    """At the last one that was committed: what was counted since is counted again with what is fed again."""
    before: dict[str, Report] = field(default_factory=dict)
    """By place, of the lives before, up to the checkpoint from which the present one began."""
    shown: dict[str, Report] = field(default_factory=dict)
    """By place, what had been said when it began: figures do not go back with the flow, but stand still until they are
    passed. Of what does not come again as it was (what is shed depends on the moment) that is an upper mark."""

    @property
    def slots(self) -> set[int]:
        return set(self.where) - {DAEMON}

    def keep(self, instance: Instance, source: int, batch: Batch | RawBatch, producer: int = 0) -> None:
        """Notes what is fed."""
        self.fed_in_all += 1
        fed = Fed(instance, source, batch, self.fed_in_all, producer=producer)
        self.fed.append(fed)
        if fed.spare:
            self.kept_bytes += batch.size
            if self.kept_bytes > KEPT_BYTES:
                self._forget()

    def _forget(self) -> None:
        """The older half of what nobody is owed an acknowledgement for."""
        left: deque[Fed] = deque()
        for fed in self.fed:
            if self.kept_bytes > KEPT_BYTES // 2 and fed.batch is not None and fed.spare:
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
        """Whether a capture holds the one and not the other."""
        return any(one.number <= mark < other.number for mark in self.marks)

    def mark(self, stop: bool = False) -> None:
        """All that was fed until now belongs to the next capture; after which the flow stands still, with `stop`."""
        self.checkpoint += 1
        self.at, self.asked = self.run.progress.position(), time.perf_counter()
        self.answers = {}
        self.marks.append(self.fed_in_all)
        # all state may be too much for the time that there is: then the next capture takes what has changed
        self.rewriting = self.run.rewrite and (stop or not self.rewriting)

    def since_mark(self) -> list[Fed]:
        """What was fed since the last capture."""
        return [fed for fed in self.fed if fed.number > self.marks[-1]]

    def trim(self) -> None:
        """What was captured is committed, but for what is pending still."""
        last = len(self.marks) - len(self.run.pending)
        committed, self.marks = self.marks[:last], self.marks[last:]
        if committed and not self.marks:
            self.committed = self.captured
        while committed and self.fed and self.fed[0].number <= committed[-1]:
            fed = self.fed.popleft()
            if fed.batch is not None and fed.spare:
                self.kept_bytes -= fed.batch.size

    def spill(self, feeding: AbstractContextManager[Any]) -> tuple[Position, dict[str, list[Entry]]]:
        """See `Host.spill`."""
        place_of = {place.instance: name for name, place in self.run.places.items() if not place.part}
        found: dict[str, list[Entry]] = {}
        with feeding, self.lock:
            self.spilling = self.fed_in_all
            for fed in self.fed:
                if fed.batch is not None and fed.batch.owed:
                    found.setdefault(place_of[fed.instance], []).append(Entry(0, fed.batch))
            return self.run.progress.position(), found

    def spilled(self) -> None:
        """The database has that."""
        with self.lock:
            # of links nothing is spilled: what is not committed is sent again
            self.fed = deque(f for f in self.fed if f.number > self.spilling or f.batch is None or not f.batch.owed)

    def answer(self, slot: int, checkpoint: int, answer: Answer, deltas: dict[str, Any], rows: Sequence[Row]) -> None:
        """Takes what a slot has said. If too late it is no answer, but what it brings was taken out of the flow."""
        self.run.taken.append(deltas)
        self.rows += [*self.results.pop(slot, ()), *rows]
        if checkpoint == self.checkpoint:
            self.answers[slot] = answer
            self.lock.notify_all()

    def answered(self) -> bool:
        """Whether nothing more can be said to the checkpoint under way."""
        return self.down or self.answers.keys() == self.slots

    def whole(self) -> bool:
        """Whether every slot gave its part."""
        given = (answer.queues is not None and not answer.fault for answer in self.answers.values())
        return not self.down and self.answers.keys() == self.slots and all(given)

    def take(self) -> None:
        """The checkpoint under way is whole: it is pending from now on."""
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
        """What was dropped since the capture that is pending, of what is not in the slots' reports, goes with it."""
        self.run.dropped = self._dropped()

    def _dropped(self) -> dict[tuple[str, str], int]:
        """See `FlowRun.dropped`: in all lives. What is `shown` goes beyond that."""
        found: dict[tuple[str, str], int] = {}
        for name in self.run.places:
            report = self.captured.get(name, Report()).after(self.before.get(name, Report()))
            found |= {(name, reason): rows for reason, rows in self._all_drops(name, report).items()}
        return found

    def ends(self, local: FlowRun) -> int:
        """`local` was brought to its end in its place. Returns how many messages are lost: fed since the last capture,
        and not kept."""
        with self.lock:
            lost = self.lose(self.since_mark())
            self.run.dropped = dict(Counter(self._dropped()) + Counter(local.dropped))
        self.run.ended = True
        self.run.pending += local.pending
        return lost

    def faults(self) -> list[str]:
        """Why slots that came to a batch boundary could not give their part."""
        return [answer.fault for answer in self.answers.values() if answer.queues is not None and answer.fault]

    def began_anew(self) -> int:
        """Notes that it is at its last checkpoint. Returns how many messages are lost: fed since, and not kept."""
        self.run.pending.clear()
        self.run.taken.clear()
        self.rows.clear()
        self.departures.clear()
        self.results.clear()
        self.marks.clear()
        self.shown = {name: self._counted(name) for name in self.run.places}
        for name, report in self.committed.items():
            self.before[name] = report.after(self.before.get(name, Report()))
        self.reports, self.captured, self.committed = {}, {}, {}
        lost = self.lose(self.fed)
        self.fed = deque(fed for fed in self.fed if fed.batch is not None)
        return lost

    def lose(self, entries: Iterable[Fed]) -> int:
        """Counts the messages in `entries`, which would be needed now, that were not kept."""
        before = self.drops.total()
        for fed in entries:
            for instance, messages in (fed.lost or {}).items():
                self.drops[instance, "lost with a slot"] += messages
        return self.drops.total() - before

    def _counted(self, name: str) -> Report:
        counted = self.reports.get(name, Report()).after(self.before.get(name, Report()))
        return counted.at_least(self.shown[name]) if name in self.shown else counted

    def report(self, name: str) -> Report:
        """What the place `name` has done, in all its lives."""
        found = self._counted(name)
        found.drops = self._all_drops(name, found)
        return found

    def _all_drops(self, name: str, found: Report) -> dict[str, int]:
        """What a report says, and what the daemon dropped itself of the same place."""
        place, drops = self.run.places[name], Counter(found.drops)
        drops += place.instance.delivery.not_taken(place.part)
        if not place.part:
            drops += Counter({reason: n for (whose, reason), n in self.drops.items() if whose is place.instance})
        return dict(+drops)


def assign(run: FlowRun, place: Place, slots: Sequence[int]) -> Assignment:
    """A location for every operator copy of a flow: as the run's assignment has it, else as its document asks, else by
    `place`. `slots` in the order in which they are to be taken."""
    sets = [copies for copies in run.plan.sets() if run.on_board(copies[0])]
    at = scheduled(run.flow.name, sets, place, slots)
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
    flow: str, sets: Sequence[Sequence[PhysicalInstance]], place: Place, slots: Sequence[int]
) -> dict[str, int]:
    """The slot of each instance by name: as the document asks, else by `place`. `sets`: the copies of each instance
    together; `slots` in the order in which they are to be taken."""
    set_of = {copy.name: copies[0].name for copies in sets for copy in copies}
    edges = dict.fromkeys(
        (copies[0].name, set_of[o.instance]) for copies in sets for o in copies[0].outputs if o.instance in set_of
    )
    placed = place({copies[0].name: len(copies) for copies in sets}, list(edges), len(slots))
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
