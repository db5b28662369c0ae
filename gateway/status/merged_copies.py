"""Copies of operators shown as one, where a flow has very many instances.

A flow of 100 operators with 64 copies each has 6,400 instances and 400,000 edges between them: nobody looks at them one
by one, and a status that names them all takes megabytes and seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from edgert.flow.plan import uncopied
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.report import Report
from gateway.status.devices import together

MOST_STAGES: Final = 256
"""Stages of a flow that are shown one by one. Of a flow with more, all copies of an operator are shown as one."""
_ADDED: Final = (
    "rows_in", "rows_out", "failures", "retries", "dead_letters", "turns", "busy_s", "queued_s", "scheduling_s",
    "queue_rows", "queue_bytes", "held_bytes",
)  # fmt: skip
_OF_ALL: Final = ("never_seen", "came", "seen", "devices")
"""Entries of a source's input that no copy can tell alone."""


def is_large(run: FlowRun) -> bool:
    """True if the copies of its operators are shown as one."""
    return len(run.stages) > MOST_STAGES


def shown_name(run: FlowRun, stage: str) -> str:
    """The name under which a stage is shown."""
    return uncopied(stage)[0] if is_large(run) else stage


def reports_of(run: FlowRun, report: Callable[[str], Report]) -> dict[str, Report]:
    """The reports of a flow's stages, by name; of a large flow that of all copies, by the name of the first."""
    if not is_large(run):
        return {name: report(name) for name in run.stages}
    copies: dict[str, list[str]] = {}
    for name in run.stages:
        copies.setdefault(uncopied(name)[0], []).append(name)
    return {names[0]: merge_reports(list(map(report, names))) for names in copies.values()}


def merge_reports(reports: Sequence[Report]) -> Report:
    """Merges the reports of several copies: counts and queues are sums, the time of rest is the mean, ages are the
    greatest."""
    first = reports[0]
    if len(reports) == 1:
        return first
    drops: Counter[str] = Counter()
    unusable: dict[str, list[Any]] = {}
    for one in reports:
        drops.update(one.drops)
        unusable |= {name: [unusable.get(name, [0])[0] + told[0], told[1]] for name, told in one.unusable.items()}
    newest_last = sorted((one.input for one in reports), key=_age, reverse=True)
    return replace(
        first,
        **{name: sum(getattr(one, name) for one in reports) for name in _ADDED},
        idle_s=sum(one.idle_s for one in reports) / len(reports),
        queue_age_s=max(one.queue_age_s for one in reports),
        drops=dict(drops),
        unusable=unusable,
        latency=[sum(counts) for counts in zip(*(one.latency for one in reports), strict=True)],
        input={n: told for one in newest_last for n, told in one.items() if n not in _OF_ALL}
        | never_seen(reports)
        | _devices(reports),
        at=max(one.at for one in reports),
    )


def never_seen(copies: Sequence[Report]) -> dict[str, Any]:
    """`never_seen`, `came` and `seen` of the copies of a source that had rows: one that came to a copy was seen."""
    told = [one.input for one in copies if one.rows_in]
    missing = [set(one.get("never_seen", ())) for one in told]
    fields = sorted(set.intersection(*missing)) if missing else []
    if not fields:
        return {}
    came = {name: sample for one in told for name, sample in one.get("came", {}).items() if name in fields}
    seen = {name for one in told for name in one.get("seen", ())}
    return {"never_seen": fields, "came": came, "seen": sorted(seen)}


def _devices(reports: Sequence[Report]) -> dict[str, Any]:
    """`devices` of all copies of a source: each hears others."""
    counts = together(one.input["devices"] for one in reports if "devices" in one.input)
    return {"devices": counts} if counts else {}


def _age(told: Mapping[str, Mapping[str, float]]) -> float:
    return told.get("malformed", {}).get("age_s", float("inf"))


def edges_of(run: FlowRun) -> list[tuple[str, str]]:
    """The edges of a flow's plan; of a large flow those between operators."""
    if not is_large(run):
        return list(run.plan.edges())
    stages = {instance.name: (instance.stages or (instance,))[0].name for instance in run.plan.instances.values()}
    pairs = (
        (uncopied(stage.name)[0], uncopied(stages.get(output.instance, output.instance))[0])
        for stage in run.plan.stages()
        if stage.copy <= 1  # the others have the same edges
        for output in stage.outputs
    )
    return list(dict.fromkeys(pairs))
