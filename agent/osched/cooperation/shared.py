"""The part of a report that a board tells, and the completion of a report by other boards' terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import Final

from agent.drivers.entities import EngineReport, EntityError, Values
from agent.osched.cooperation.terms import ENTRY, BoardTerms, FlowTerms
from agent.osched.policy.metric_graph import MetricError, MetricProvider, closure
from agent.osched.policy.policies import POLICIES

REMOTE: Final = "remote_"
"""How the names of metrics of operators on other boards begin."""


def completed(report: EngineReport, others: Iterable[BoardTerms]) -> EngineReport:
    """The report with the metrics `remote_*`, of flows that have the same plan here and there."""
    found: dict[str, dict[str, float]] = {REMOTE + metric: {} for metric in (*ENTRY, "cost_before")}
    for name, flow in _same_plan(report, others):
        for operator, told in flow.takes.items():
            for metric, value in told.items():
                found[REMOTE + metric][f"{name}/{operator}"] = value
        before = found[REMOTE + "cost_before"]
        for operator, cost in flow.sends.items():
            full = f"{name}/{operator}"
            if cost is not None and full in report.operators:
                before[full] = max(cost, before.get(full, 0.0))
    return replace(report, metrics={**report.metrics, **{metric: of for metric, of in found.items() if of}})


def own_terms(
    report: EngineReport, policy: str, span: tuple[float, float] | None, others: Iterable[BoardTerms]
) -> BoardTerms:
    """The terms that this board tells; `report` is completed. Only metrics that the policy rests on are told, and
    queues.

    Another board says which operators of this board it sends to; they are told from then on.
    """
    provider, given = MetricProvider(report), dict[str, Values]()
    for metric in {"queue_size", *closure(POLICIES[policy].metrics)} & {*ENTRY, "cost_before"}:
        try:
            given[metric] = provider.get(metric)
        except (MetricError, EntityError):
            continue  # the schedule says it where the policy needs it
    before = given.get("cost_before", {})
    sends: dict[str, dict[str, float | None]] = {}
    takes: dict[str, dict[str, dict[str, float]]] = {}
    for o in report.operators.values():
        for full in o.remote:
            to = sends.setdefault(o.query, {})
            name, cost = full.removeprefix(f"{o.query}/"), before.get(o.name)
            known = [c for c in (cost, to.get(name)) if c is not None]
            to[name] = max(known, default=None)
    for flow, terms in _same_plan(report, others):
        for operator in terms.sends:
            if (full := f"{flow}/{operator}") in report.operators:
                of = {metric: given[metric][full] for metric in ENTRY if full in given.get(metric, {})}
                takes.setdefault(flow, {})[operator] = of
    shared = {*sends, *takes} & report.queries.keys()
    return BoardTerms(
        policy, span, {f: FlowTerms(report.queries[f].plan, sends.get(f, {}), takes.get(f, {})) for f in shared}
    )


def _same_plan(report: EngineReport, others: Iterable[BoardTerms]) -> list[tuple[str, FlowTerms]]:
    return [
        (name, flow)
        for terms in others
        for name, flow in terms.flows.items()
        if name in report.queries and report.queries[name].plan == flow.plan
    ]


def divided(report: EngineReport, others: Iterable[BoardTerms]) -> set[str]:
    """Flows of the report that other boards run a part of."""
    here = {o.query for o in report.operators.values() if o.remote}
    told = _same_plan(report, others)
    return here | {name for name, flow in told if any(f"{name}/{o}" in report.operators for o in flow.sends)}


def sharing(flows: Set[str], others: Mapping[str, BoardTerms]) -> list[str]:
    """The boards that share a flow with this one, or with one that does, and so on: a priority is to mean the same on
    all of them."""
    found: list[str] = []
    reached, left = set(flows), dict(others)
    while near := [name for name, terms in left.items() if not reached.isdisjoint(terms.flows)]:
        for name in near:
            reached |= left.pop(name).flows.keys()
        found += near
    return sorted(found)


def held_back(priorities: Mapping[str, float], report: EngineReport) -> dict[str, float]:
    """Operator -> factor below 1 of its priority, where its rows go to a longer queue on another board than its own is:
    (1 + own queue) / (1 + longest remote queue). Work that waits there cannot be done earlier by doing more here."""
    remote, found = report.metrics.get("remote_queue_size", {}), dict[str, float]()
    if not remote:
        return found
    try:
        own = MetricProvider(report).get("queue_size")
    except MetricError:
        return found
    for name in priorities:
        lengths = [remote[s] for s in report.operators[name].remote if s in remote]
        if lengths and name in own and max(lengths) > own[name]:
            found[name] = (1.0 + own[name]) / (1.0 + max(lengths))
    return found
