"""The report of an operator: its work, and the rows waiting in its queue, in plain numbers. Used by the status page,
Prometheus and links from other processes."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from edgert.core.errors import show
from edgert.flow.structure import ALWAYS
from edgert.operators.base.error_boundary import FAILED
from edgert.operators.sources.source import Source
from edgert.runtime.instance.build import Stage
from edgert.runtime.instance.counters import NOT_SENT
from edgert.runtime.instance.latency import BUCKETS


@dataclass(slots=True)
class Report:
    """Figures of one stage. Queue, turns, and all times but `busy_s`, of a region are those of its first stage: the
    others have none of their own.

    All but the queue's figures and `at` count since the start of the process."""

    rows_in: int = 0
    rows_out: int = 0
    failures: int = 0
    retries: int = 0
    dead_letters: int = 0
    turns: int = 0
    busy_s: float = 0.0
    queued_s: float = 0.0
    scheduling_s: float = 0.0
    idle_s: float = 0.0
    queue_rows: int = 0
    """Rows as in `Queue.rows`: an empty batch counts as one."""
    queue_bytes: int = 0
    queue_age_s: float = 0.0
    drops: dict[str, int] = field(default_factory=dict)
    """Rows by reason."""
    lost: dict[str, str] = field(default_factory=dict)
    """The newest lost row or message, and what was wrong, by reason of `drops`, as far as it is known."""
    unusable: dict[str, list[Any]] = field(default_factory=dict)
    """Values of kept rows that the operator could not use, by field, and the newest as text."""
    latency: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    """Rows that left the flow here by how long they took; see `edgert.runtime.instance.latency`."""
    input: dict[str, Any] = field(default_factory=dict)
    """Input of a source, as far as there is any to report: `malformed` (the newest malformed payload: `topic`,
    `beginning`, `reason`, `age_s`), `never_seen` (fields that the flow names and no payload had), `came` (those that
    payloads named without a usable value), `seen` (the fields of payloads), `still` (see `Devices.still`), `ahead` (the
    newest message with a row ahead of time, see `AheadOfTime`), `units` (see `Units.found`), `devices` (see
    `SilentDevices.plain`; only of a source whose devices' times matter)."""
    held_bytes: int = 0
    """Bytes of what it keeps by key, about; a gauge, as the queue's figures."""
    at: float = 0.0
    """When it was made, in monotonic seconds of the process that made it; 0: that has said nothing yet."""

    def after(self, before: Report) -> Report:
        """This report plus the counts `before` the process that made this one began."""
        added: dict[str, Any] = {name: getattr(self, name) + getattr(before, name) for name in _SUMS}
        drops = dict(Counter(self.drops) + Counter(before.drops))
        latency = [a + b for a, b in zip(self.latency, before.latency, strict=True)]
        return dataclasses.replace(self, **added, drops=drops, latency=latency)

    def at_least(self, said: Report) -> Report:
        """This report with every count at least as great as in `said`: a counter never goes back, so some counts are
        too great for a while."""
        most: dict[str, Any] = {name: max(getattr(self, name), getattr(said, name)) for name in _SUMS}
        drops = dict(Counter(self.drops) | Counter(said.drops))
        latency = [max(a, b) for a, b in zip(self.latency, said.latency, strict=True)]
        return dataclasses.replace(self, **most, drops=drops, latency=latency)

    def plain(self) -> list[Any]:
        """For a frame."""
        return [getattr(self, name) for name in _FIELDS]

    @classmethod
    def from_plain(cls, values: Sequence[Any]) -> Report:
        return cls(**dict(zip(_FIELDS, values, strict=True)))


_FIELDS = tuple(f.name for f in dataclasses.fields(Report))
_SUMS = (
    "rows_in", "rows_out", "failures", "retries", "dead_letters", "turns", "busy_s",
    "queued_s", "scheduling_s", "idle_s",
)  # fmt: skip


def drops_of(stage: Stage) -> dict[str, int]:
    """Drops of a stage in this process, by reason."""
    drops = Counter(stage.logic.drops)
    drops += stage.instance.delivery.not_taken(stage.number)
    if not stage.number:
        drops["queue over budget"] += stage.instance.delivery.shed
    return dict(+drops)


def lost_of(stage: Stage) -> dict[str, str]:
    """The value of `Report.lost`."""
    found = {NOT_SENT: why} if (why := stage.instance.delivery.newest_unsent.get(stage.number)) else {}
    why, row = stage.boundary.newest_lost
    if why:
        known = next((reason for reason in list(stage.logic.drops) if why.startswith(f"{reason}: ")), FAILED)
        found[known] = f"{why.removeprefix(f'{known}: ')[:200]}, in {show(row, 100)}"
    return found


def input_of(stage: Stage, now: float) -> dict[str, Any]:
    """The value of `Report.input`."""
    source, found = stage.logic, dict[str, Any]()
    if not isinstance(source, Source):
        return found
    if bad := source.newest_bad:
        beginning = bad.beginning.decode(errors="backslashreplace")
        found["malformed"] = {
            "topic": bad.topic, "beginning": beginning, "reason": bad.reason, "age_s": round(now - bad.arrival, 1),
        }  # fmt: skip
    if ahead := source.newest_ahead:
        found["ahead"] = dataclasses.asdict(ahead)
    if missing := source.unseen.never_seen(now):
        found |= {"never_seen": missing, "came": source.unseen.came.copy()}
        found |= {"seen": sorted(set(source.unseen.seen) - ALWAYS)}
    if units := source.unseen.units.found():
        found["units"] = units
    if source.heeded:
        found["devices"] = source.devices.silent.plain(len(source.devices.latest), now)
    if still := source.devices.still():
        found["still"] = list(still)
    return found


def report(stage: Stage, now: float) -> Report:
    """The report of a stage in this process, at `now` (monotonic seconds)."""
    boundary, memory = stage.boundary, stage.logic.memory
    found = Report(
        stage.rows_in, stage.rows_out, boundary.failures, boundary.retries, boundary.dead_letters, busy_s=stage.busy_s,
        drops=drops_of(stage), input=input_of(stage, now), at=now,
        lost=lost_of(stage),
        unusable={name: [count, show(value)] for name, (count, value) in stage.logic.unusable.copy().items()},
        held_bytes=memory.held_bytes if memory else 0,
    )  # fmt: skip
    if stage.number:
        return found
    instance = stage.instance
    counters, queue = instance.counters, instance.queue
    since = queue.waiting_since()
    return dataclasses.replace(
        found,
        turns=counters.turns,
        queued_s=counters.queued_s,
        scheduling_s=counters.scheduling_s,
        idle_s=instance.idle_at(now),
        queue_rows=queue.rows,
        queue_bytes=queue.size,
        queue_age_s=0.0 if since is None else now - since,
        latency=list(instance.counters.latency.counts),
    )
