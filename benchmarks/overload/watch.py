"""What is checked: the most that each queue has held against its bound, and where every row is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from edgert.runtime.instance.report import report
from edgert.runtime.instance.turn import Turn
from edgert.runtime.pool.pool import Pool

NOT_ROWS: Final = ("(values)", "(kept)", "(keys)")
"""Reasons that end so count something else than rows that are gone."""


class WatchedPool(Pool):
    """Notes the most bytes that each queue has held at any moment, and the most that one turn of each instance has put
    on each queue. A look now and then would miss what comes and goes between two turns."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.most: dict[Instance, int] = {}
        self.turns: dict[tuple[Instance, Instance], int] = {}

    def _put(self, instance: Instance, entry: Entry, *, accepted: bool = False) -> None:
        super()._put(instance, entry, accepted=accepted)
        self._look(instance)

    def _look(self, instance: Instance) -> None:
        size = instance.queue.size
        if size > self.most.get(instance, 0):
            self.most[instance] = size

    def settle_turn(self, instance: Instance, turn: Turn[Instance]) -> None:
        sizes: Counter[Instance] = Counter()
        for target, batch in turn.out:
            sizes[target.instance] += batch.size
        for fed, size in sizes.items():
            if size > self.turns.get((instance, fed), 0):
                self.turns[instance, fed] = size
        super().settle_turn(instance, turn)
        if turn.back:
            self._look(instance)

    def bound(self, instance: Instance) -> int:
        """The most bytes that its queue may hold. A source sheds, so its queue keeps to its budget. The pool lets no
        instance begin a turn whose output goes to a queue over its budget; but when a queue is within it, each of those
        that feed it may be at work already. So it may hold its budget and one turn's output of each of them."""
        return instance.queue.budget_bytes + sum(size for (_, fed), size in self.turns.items() if fed is instance)

    def fullness(self, run: FlowRun) -> dict[str, float]:
        """The most that a source's queue and that an inner one has held, as a part of its bound; and by how many bytes
        one was over its budget at most."""
        sources = {instance for _, copies in run.sources() for instance in copies}
        parts = {instance: self.most.get(instance, 0) / self.bound(instance) for instance in run.all}
        excess = max(self.most.get(instance, 0) - instance.queue.budget_bytes for instance in run.all)
        return {
            "source": max(parts[instance] for instance in sources),
            "inner": max((part for instance, part in parts.items() if instance not in sources), default=0.0),
            "excess": max(0, excess),
        }


def ledger(run: FlowRun, fed: int, sent: Mapping[str, int]) -> dict[str, int]:
    """Where the rows are, while nothing runs: of `fed` messages, and of the messages `sent` by each instance.

    All is taken from the counters that users see (`edgert.runtime.instance.report`). `missing`: messages fed that
    were neither decoded nor dropped with a count and do not wait either. `amiss`: rows that one operator gave and
    the next did not take and that do not wait in front of it (or the other way round), and rows that reached a sink
    and were not sent.
    """
    reports = {name: report(stage, 0.0) for name, stage in run.stages.items()}
    sources = [instance.name for _, copies in run.sources() for instance in copies]
    sources = [(run.plan.instances[name].stages or (run.plan.instances[name],))[0].name for name in sources]
    decoded = sum(reports[name].rows_out for name in sources)
    dropped = sum(_rows(reports[name].drops) for name in sources)
    queued = sum(_waiting(run.stages[name].instance) for name in sources)
    given: Counter[str] = Counter()
    for giver, taker in run.plan.edges():
        given[taker] += reports[giver].rows_out
    amiss = 0
    for name, stage in run.stages.items():
        if name not in sources:
            waiting = 0 if stage.number else _waiting(stage.instance)
            amiss += abs(given[name] - reports[name].rows_in - waiting)
    ends = [name for name, stage in run.stages.items() if stage.planned.kind == "sink"]
    reached = sum(reports[name].rows_in - _rows(reports[name].drops) for name in ends)
    return {
        "fed": fed,
        "decoded": decoded,
        "dropped": dropped,
        "queued": queued,
        "missing": fed - decoded - dropped - queued,
        "amiss": amiss + abs(reached - sum(sent.values())),
    }


def _rows(drops: Mapping[str, int]) -> int:
    return sum(rows for reason, rows in drops.items() if not reason.endswith(NOT_ROWS))


def _waiting(instance: Instance) -> int:
    return sum(len(entry.batch) for entry in instance.queue.entries)
