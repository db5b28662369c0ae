"""A flow in slots, as its daemon keeps it: where its instances are, what was fed to it since its last checkpoint, what
the slots have said of it."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from edgert.core.batch import Batch, RawBatch, Row
from edgert.links import frames
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance import Instance
from edgert.runtime.queue import Entry
from edgert.runtime.report import Report

KEPT_BYTES: Final = 4_194_304
"""Input that nobody is owed an acknowledgement for (QoS 0) is kept for replay only up to this; what is owed one is kept
in any case, and bounded by the point at which the gateway stops reading."""


@dataclass(slots=True)
class Fed:
    """What was fed, for the case that it must be fed again."""

    instance: Instance
    source: int
    batch: Batch | RawBatch | None
    """None: it would have been too much to keep."""
    lost: int = 0
    """Messages that were in it then."""


@dataclass(eq=False, slots=True)
class Hosted:
    """A flow in slots. `lock` guards all but what the loop alone uses."""

    run: FlowRun
    where: list[int]
    """Slot of each instance, in the plan's order."""
    number: int = 0
    """Of its present life; see `edgert.links.frames`."""
    down: bool = False
    """A slot of it died; it goes on when it was brought back to its checkpoint."""
    deaths: int = 0
    """Of its slots, since its last checkpoint."""
    lock: threading.Condition = field(default_factory=threading.Condition)
    fed: deque[Fed] = field(default_factory=deque)
    """Since the last committed checkpoint, oldest first."""
    trimmed: int = 0
    """How many were taken out of `fed`, in all."""
    kept_bytes: int = 0
    """In `fed`, of what nobody is owed an acknowledgement for."""
    marks: list[int] = field(default_factory=list)
    """Of captures not committed yet: how many had been fed in all by then."""
    checkpoint: int = 0
    answers: dict[int, tuple[dict[str, Any] | None, str]] = field(default_factory=dict)
    """Slot → queues (None: it came to no batch boundary) and fault, of the checkpoint under way."""
    rows: list[Row] = field(default_factory=list)
    """To be shipped with the next capture that is whole."""
    drops: Counter[str] = field(default_factory=Counter)
    """Messages that did not come as far as a slot, or were lost with one."""
    reports: dict[str, Report] = field(default_factory=dict)
    """By place, of the present life."""
    before: dict[str, Report] = field(default_factory=dict)
    """By place, of the lives before."""

    @property
    def slots(self) -> set[int]:
        return set(self.where)

    def keep(self, instance: Instance, source: int, batch: Batch | RawBatch) -> None:
        """Notes what is fed."""
        self.fed.append(Fed(instance, source, batch))
        if not owed(batch):
            self.kept_bytes += batch.size
            if self.kept_bytes > KEPT_BYTES:
                self._forget()

    def _forget(self) -> None:
        """The older half of what nobody is owed an acknowledgement for."""
        for fed in self.fed:
            if self.kept_bytes <= KEPT_BYTES // 2:
                return
            if fed.batch is not None and not owed(fed.batch):
                self.kept_bytes -= fed.batch.size
                fed.lost, fed.batch = len(fed.batch), None

    def mark(self) -> None:
        """All that was fed until now belongs to the next capture."""
        self.checkpoint += 1
        self.answers = {}
        self.marks.append(self.trimmed + len(self.fed))

    def since_mark(self) -> list[Fed]:
        """What was fed since the last capture."""
        return list(self.fed)[self.marks[-1] - self.trimmed :]

    def trim(self) -> None:
        """What was captured is committed."""
        if self.marks:
            self.deaths = 0
        while self.marks and self.trimmed < self.marks[-1]:
            fed = self.fed.popleft()
            self.trimmed += 1
            if fed.batch is not None and not owed(fed.batch):
                self.kept_bytes -= fed.batch.size
        self.marks.clear()

    def answered(self) -> bool:
        """Whether nothing more can be said to the checkpoint under way."""
        return self.down or self.answers.keys() == self.slots

    def whole(self) -> bool:
        """Whether every slot has given its part of the checkpoint under way."""
        given = (queues is not None and not fault for queues, fault in self.answers.values())
        return not self.down and self.answers.keys() == self.slots and all(given)

    def queues(self) -> dict[str, list[Entry]]:
        """Of the checkpoint under way, all slots together."""
        told = [queues for queues, _ in self.answers.values() if queues is not None]
        return {name: [_entry(packed) for packed in entries] for part in told for name, entries in part.items()}

    def began_anew(self) -> int:
        """Notes that it is at its last checkpoint. Returns how many messages are lost: fed since, and not kept."""
        self.run.pending.clear()
        self.run.taken.clear()
        self.rows.clear()
        self.marks.clear()
        lost = sum(fed.lost for fed in self.fed)
        for fed in self.fed:
            fed.lost = 0
        if lost:
            self.drops["lost with a slot"] += lost
        return lost

    def died(self) -> None:
        """What was counted in the life that has ended stays counted."""
        for name, last in self.reports.items():
            self.before[name] = last.after(self.before.get(name, Report()))
        self.reports = {}

    def report(self, name: str) -> Report:
        """What the place `name` has done, in all its lives."""
        place = self.run.places[name]
        found = self.reports.get(name, Report()).after(self.before.get(name, Report()))
        drops = Counter(found.drops)
        if not place.part:
            drops["not sent"] += place.instance.unsent
            if place.instance is self.run.all[0]:
                drops += self.drops
        found.drops = dict(+drops)
        return found


def owed(batch: Batch | RawBatch) -> bool:
    """Whether somebody is owed an acknowledgement for it."""
    return isinstance(batch, RawBatch) and batch.owed


def _entry(packed: Sequence[Any]) -> Entry:
    source, producer, batch = packed
    return Entry(source, frames.unpack_batch(batch), producer=producer)
