"""Answers of the verbs `sched.status`, `sched.explain` and `sched.dry-run`: plain values, made from a scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.drivers.entities import Operator, Thread, Values
from agent.osched.cooperation.shared import REMOTE, completed
from agent.osched.kernel.actions import Action, SetCores, SetGroup, SetNice, SetSlice
from agent.osched.kernel.clusters import cores
from agent.osched.policy.metric_graph import METRICS, MetricError, MetricProvider
from agent.osched.policy.policies import NONE, POLICIES
from agent.osched.schedule import PeriodSchedule
from agent.osched.scheduler import Scheduler
from edgert.core.errors import EdgertError


def status(scheduler: Scheduler) -> dict[str, Any]:
    """Returns the status of OS scheduling, with a row per operator."""
    door, schedule = scheduler.door, scheduler.schedule
    lacks = door.able.lacks()
    if scheduler.settings.affinity == "on" and scheduler.how.fast is None:
        lacks.append("affinity: all cores of this board are alike, or the kernel does not tell their capacity")
    if scheduler.why_grouped:
        grouped = scheduler.settings.root_group != "never" and door.able.cgroups is not None
        lacks.append(
            f"{'one control group for all' if grouped else 'nice works in part only'}: {scheduler.why_grouped}"
        )
    notes = [note for report in scheduler.reports.values() for note in report.notes]
    return {
        "rule": scheduler.rule_text,
        "policy": scheduler.running.policy,
        "period_s": scheduler.running.period_s or scheduler.settings.period_s,
        "mechanism": scheduler.how.name,
        "measures": dict(scheduler.measures),
        "periods": scheduler.periods,
        "lasted_s": dict(scheduler.lasted_s),
        "notes": [*lacks, *notes],
        "errors": [*scheduler.errors.values(), *schedule.errors, *scheduler.outcome.errors],
        "cooperation": cooperation(scheduler),
        "operators": _rows(scheduler, schedule),
    }


def cooperation(scheduler: Scheduler) -> dict[str, Any]:
    """The exchange with agents of other boards, and its effects."""
    state = "on" if scheduler.peers is not None else "off" if not scheduler.settings.cooperate else "alone"
    return {
        "state": state,
        **scheduler.cooperation.plain(scheduler.running.policy, scheduler.now()),
        "errors": list(scheduler.cooperation.errors.values()),
        "held": {name: factor for of in scheduler.schedule.held.values() for name, factor in of.items()},
    }


def _rows(scheduler: Scheduler, schedule: PeriodSchedule) -> list[dict[str, Any]]:
    nice, slices = _by_thread(schedule.actions)
    fast = {a.thread: a.cores for a in schedule.actions if isinstance(a, SetCores)}
    shares = {t: a.share for a in schedule.actions if isinstance(a, SetGroup) and a.group for t in a.threads}
    policy = POLICIES.get(schedule.policy)
    rows = []
    for driver, report in scheduler.reports.items():
        for operator in report.operators.values():
            row: dict[str, Any] = {
                "driver": driver, "query": operator.query, "operator": operator.name, "location": operator.location,
                "threads": len(operator.threads), "metrics": {}, **_got(scheduler, operator),
            }  # fmt: skip
            for metric in policy.metrics if policy else ():
                value = schedule.metrics.get(driver, {}).get(metric, {}).get(operator.name)
                if value is not None:
                    row["metrics"][metric] = value
            priority = schedule.priorities.get(driver, {}).get(operator.name)
            if priority is not None:
                row["priority"] = priority
            if operator.name in schedule.held.get(driver, {}):
                row["held"] = schedule.held[driver][operator.name]
            if operator.threads and operator.threads[0] in nice:
                row["nice"] = nice[operator.threads[0]]
            if operator.threads and operator.threads[0] in fast:
                row["cores"] = sorted(cores(fast[operator.threads[0]]))
            if operator.threads and operator.threads[0] in shares:
                row["share"] = shares[operator.threads[0]]
            if operator.threads and operator.threads[0] in slices:
                row["slice_ms"] = slices[operator.threads[0]] / 1e6
            rows.append(row)
    return rows


def _by_thread(actions: list[Action]) -> tuple[dict[Thread, int], dict[Thread, int]]:
    nice = {a.thread: a.nice for a in actions if isinstance(a, SetNice)}
    return nice, {a.thread: a.slice_ns for a in actions if isinstance(a, SetSlice)}


def _got(scheduler: Scheduler, operator: Operator) -> dict[str, float]:
    """Cores that the operator's threads got and waited for; absent if not known."""
    shares = [scheduler.shares[t] for t in operator.threads if t in scheduler.shares]
    if not shares:
        return {}
    return {"cpu": sum(ran for ran, _ in shares), "waited": sum(waited for _, waited in shares)}


def dry_run(scheduler: Scheduler, policy: str) -> dict[str, Any]:
    """The actions that `policy` would ask for now."""
    if policy == NONE:
        return {"policy": policy, "actions": ["every thread is put back"], "notes": [], "errors": []}
    if policy not in POLICIES:
        raise EdgertError(f"policy: expected one of {', '.join((*POLICIES, NONE))}, got {policy!r}")
    schedule = scheduler.decide(policy)
    locations = {t: o.location for r in scheduler.reports.values() for o in r.operators.values() for t in o.threads}
    return {
        "policy": policy,
        "actions": [_said(action, locations) for action in schedule.actions],
        "notes": _scale(scheduler, policy, schedule),
        "errors": [*scheduler.errors.values(), *schedule.errors],
    }


def _scale(scheduler: Scheduler, policy: str, schedule: PeriodSchedule) -> list[str]:
    """How other boards count for a schedule; for people."""
    notes, cooperation = [], scheduler.cooperation
    if span := cooperation.span(policy):
        boards = ", ".join(cooperation.boards)
        notes.append(f"priorities count on one scale with those of {boards}: {span[0]:.4g} to {span[1]:.4g} there")
    for of in schedule.held.values():
        notes += [
            f"{name}: {factor:.2g} of its priority, as the next operator's queue on another board is longer"
            for name, factor in of.items()
        ]
    return notes


def _said(action: Action, locations: Mapping[Thread, str]) -> str:
    if isinstance(action, SetNice):
        return f"thread {action.thread.tid} ({locations[action.thread]}): nice {action.nice}"
    if isinstance(action, SetSlice):
        return f"thread {action.thread.tid} ({locations[action.thread]}): slice {action.slice_ns / 1e6:g} ms"
    if isinstance(action, SetCores):
        listed = ", ".join(map(str, sorted(cores(action.cores))))
        return f"thread {action.thread.tid} ({locations[action.thread]}): cores {listed}"
    if isinstance(action, SetGroup):
        limit = "" if action.quota is None else f", at most {action.quota:g} cores"
        name = action.group or "root group"
        return f"group {name}: share {action.share:g}{limit}, {len(action.threads)} threads"
    weights = ", ".join(f"{name} {weight:g}" for name, weight in action.weights.items())
    return f"flow {action.flow}: pool weights {weights}"


def explain(scheduler: Scheduler, name: str) -> dict[str, Any]:
    """All that is known of one operator: each metric that its driver can give, and what followed from it."""
    for driver, report in scheduler.reports.items():
        operator = report.operators.get(name)
        if operator is None:
            continue
        whole = completed(report, scheduler.cooperation.others.values())
        provider, metrics = MetricProvider(whole), {}
        for metric in METRICS.values():
            try:
                value = provider.get(metric.name).get(name)
            except MetricError:
                continue
            if value is not None:
                metrics[metric.name] = {"value": value, "about": metric.about, "from": list(metric.dependencies)}
        row = next(r for r in _rows(scheduler, scheduler.schedule) if r["driver"] == driver and r["operator"] == name)
        priorities = sorted(scheduler.schedule.priorities.get(driver, {}).values(), reverse=True)
        return {
            **row,
            "policy": scheduler.running.policy,
            "metrics": metrics,
            "successors": list(operator.successors),
            "remote": {s: _of_remote(whole.metrics, s) for s in operator.remote},
            "rank": priorities.index(row["priority"]) + 1 if "priority" in row else None,
            "of": len(priorities),
            "shares_threads_with": _beside(report.operators, operator),
            "latency_s": report.queries[operator.query].latency_s if operator.query in report.queries else None,
        }
    known = [n for report in scheduler.reports.values() for n in report.operators]
    raise EdgertError(f"operator: expected one of {', '.join(sorted(known)) or 'none that is known'}, got {name!r}")


def _of_remote(metrics: Mapping[str, Values], name: str) -> dict[str, float]:
    """Metrics of another board's operator."""
    return {m.removeprefix(REMOTE): of[name] for m, of in metrics.items() if m.startswith(REMOTE) and name in of}


def _beside(operators: Mapping[str, Operator], operator: Operator) -> list[str]:
    """The operators whose priority counts for the same threads."""
    ours = set(operator.threads)
    return sorted(o.name for o in operators.values() if o.name != operator.name and ours.intersection(o.threads))
