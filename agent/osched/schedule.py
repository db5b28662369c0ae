"""From reports to actions: policy → transformation → normaliser → translator, for all engines of a board together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent.drivers.entities import EngineReport, EntityError, Operator, Thread, Values
from agent.osched.cooperation.shared import held_back
from agent.osched.kernel.actions import Action
from agent.osched.kernel.clusters import Clusters
from agent.osched.normalise import PrioritySmoothing
from agent.osched.policy.metric_graph import MetricError, MetricProvider
from agent.osched.policy.policies import Draw, PriorityPolicy
from agent.osched.transformation import groups_by_query, logical_to_physical, physical_to_threads, units_of
from agent.osched.translate import to_cores, to_groups, to_nice, to_slices, to_weights

NONSENSE: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that a report of another form causes."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """The kernel's mechanism, as translators see it."""

    name: str = "nice"
    """One of `edgert.core.settings.agent.MECHANISMS`."""
    best: int = 0
    worst: int = 19
    weights: bool = False
    """Also weights in the pools of our own slots."""
    fast: Clusters | None = None
    """Also the fast cores for those that are most urgent."""
    quotas: Mapping[str, float] = field(default_factory=dict)
    """Query -> cores that its group may use at most."""

    def __contains__(self, part: str) -> bool:
        return part in self.name.split("+")


@dataclass(slots=True)
class PeriodSchedule:
    """The decisions of one period."""

    policy: str = ""
    metrics: dict[str, dict[str, Values]] = field(default_factory=dict)
    """Driver -> metric -> operator -> value, of the metrics that the policy asked for."""
    priorities: dict[str, dict[str, float]] = field(default_factory=dict)
    """Driver -> operator -> priority."""
    held: dict[str, dict[str, float]] = field(default_factory=dict)
    """Driver -> operator -> factor by which its priority is less: its successor on another board is congested."""
    threads: dict[Thread, float] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def span(self) -> tuple[float, float] | None:
        """Least and greatest priority of a thread; None without threads."""
        return (min(self.threads.values()), max(self.threads.values())) if self.threads else None


def decide(
    reports: Sequence[EngineReport],
    policy: PriorityPolicy,
    how: Mechanism,
    random: Draw,
    smoothing: PrioritySmoothing | None = None,
    over: Sequence[float] = (),
) -> PeriodSchedule:
    """The schedule of `policy` for all reports. A report that lacks a metric is left out, and said in `errors`.

    `over`: priorities on other boards, on whose scale those of this board are.
    """
    schedule = PeriodSchedule(policy.name)
    used: list[EngineReport] = []
    for report in reports:
        try:
            schedule.priorities[report.driver] = _priorities(report, policy, random, schedule)
            used.append(report)
        except (MetricError, EntityError) as error:
            schedule.errors.append(str(error))
        except NONSENSE as error:  # a driver may be a third party's: the other engines are scheduled all the same
            schedule.errors.append(f"driver {report.driver}: expected entities as its interface says, got {error!r}")
    if smoothing is not None:
        _smooth(schedule, smoothing)
    operators: list[Operator] = []
    weights: dict[tuple[str, str], float] = {}
    for report in used:
        found = schedule.priorities[report.driver]
        schedule.threads.update(physical_to_threads(found, report.operators.values()))
        operators += report.operators.values()
        if how.weights and report.weighable:
            weights |= {(report.operators[n].query, report.operators[n].instance): p for n, p in found.items()}
    schedule.actions = _translate(schedule.threads, operators, policy, how, over)
    if weights:
        schedule.actions += to_weights(weights, policy.logarithmic)
    return schedule


def _priorities(
    report: EngineReport, policy: PriorityPolicy, random: Draw, schedule: PeriodSchedule
) -> dict[str, float]:
    """Priorities of the report's physical operators. One that is no finite number is left out, and said in `errors`."""
    provider = MetricProvider(report)
    given = {name: provider.get(name) for name in policy.metrics}
    found = logical_to_physical(policy.compute(report, given, random), report.operators.values())
    held = held_back(found, report) if policy.holds_back else {}
    found |= {name: found[name] * factor for name, factor in held.items()}
    odd = sorted(name for name, priority in found.items() if not math.isfinite(priority))
    if odd:
        values = ", ".join(f"{found.pop(name)} for {name}" for name in odd)
        schedule.errors.append(f"driver {report.driver}: expected finite priorities, got {values}: left alone")
    schedule.metrics[report.driver], schedule.held[report.driver] = given, held
    return found


def _smooth(schedule: PeriodSchedule, smoothing: PrioritySmoothing) -> None:
    """All engines in one call: what a call does not name is forgotten."""
    whole = {(driver, name): p for driver, of in schedule.priorities.items() for name, p in of.items()}
    for (driver, name), priority in smoothing.smooth(whole).items():
        schedule.priorities[driver][name] = priority


def _translate(
    threads: Mapping[Thread, float],
    operators: Sequence[Operator],
    policy: PriorityPolicy,
    how: Mechanism,
    over: Sequence[float],
) -> list[Action]:
    actions: list[Action] = []
    groups = groups_by_query(operators, "several") if "groups" in how else {}
    if groups:
        counted = {name: (float(count), tuple(members)) for name, (count, members) in groups.items()}
        actions += to_groups(counted, how.quotas)
    if "nice" in how:
        # In a group of its own, a query's nice values compare with each other only.
        for members in [members for _, members in groups.values()] if groups else [list(threads)]:
            ours = {t: threads[t] for t in members if t in threads}
            actions += to_nice(ours, how.best, how.worst, () if groups else over)
    if how.fast is not None:
        units = units_of(operators, threads)
        actions += to_cores(units, how.fast.big)
    if "slice" in how:
        actions += to_slices(threads, policy.logarithmic, over=over)
    return actions
