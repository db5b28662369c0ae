"""Scheduling policies (Lachesis §5.1 and ours): metrics → a real-valued priority per operator; more goes first.

| name | priority | goal |
|---|---|---|
| `qs` | rows in the queue | even queues, throughput (EdgeWise) |
| `hr` | results per second of computation on the paths to the sinks | mean latency (Sharaf et al.) |
| `fcfs` | age of the oldest row | greatest latency |
| `ioq` | own queue over the longest queue of a successor | no work for who cannot pass it on |
| `slack` | budget of the flow over what is left of it at this operator | latency targets |
| `random` | a random number | a yardstick |
| `constant` | 1 | all alike |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from agent.drivers.entities import EngineReport, Values

Draw = Callable[[], float]
"""A number of [0, 1), each time another one."""
NONE: Final = "none"
"""The name of no policy: every thread is as it was before the agent came."""
URGENT: Final = 0.01
"""Least part of a budget that `slack` tells apart: 1 / URGENT is its greatest priority."""


@dataclass(frozen=True, slots=True)
class PriorityPolicy:
    """A policy. `compute` is given the metrics that it names, and draws random numbers from its last argument."""

    name: str
    about: str
    metrics: tuple[str, ...]
    compute: Callable[[EngineReport, Mapping[str, Values], Draw], Values]
    logarithmic: bool = False
    """Its priorities differ by factors, not by differences: a min-max normaliser takes their logarithms."""
    holds_back: bool = True
    """An operator whose successor on another board is congested gets less (`agent.osched.cooperation.shared`)."""


def _same(metric: str) -> Callable[[EngineReport, Mapping[str, Values], Draw], Values]:
    return lambda report, given, random: given[metric]


def _random(report: EngineReport, given: Mapping[str, Values], random: Draw) -> Values:
    return {name: random() for name in report.operators}


def _constant(report: EngineReport, given: Mapping[str, Values], random: Draw) -> Values:
    return dict.fromkeys(report.operators, 1.0)


def _slack(report: EngineReport, given: Mapping[str, Values], random: Draw) -> Values:
    """1 / (slack as a part of the budget), where the slack of an operator is its deadline less the head row's age.

    The deadline of an operator is its query's `latency` times the metric `deadline_share`. An operator whose deadline
    has passed is the most urgent. One whose oldest row is later than the whole `latency` gets 0: it is late anyway,
    and what it would take makes others late. Queries without a `latency`, and empty queues, get 1.
    """
    age, share = given["head_age_s"], given["deadline_share"]
    found: dict[str, float] = {}
    for operator in report.operators.values():
        query = report.queries.get(operator.query)
        budget_s, late_s = query.latency_s if query else None, age.get(operator.name, 0.0)
        if not budget_s or late_s <= 0.0:
            found[operator.name] = 1.0
        elif late_s >= budget_s:
            found[operator.name] = 0.0
        else:
            left = share.get(operator.name, 1.0) - late_s / budget_s
            found[operator.name] = 1.0 / min(1.0, max(URGENT, left))
    return found


POLICIES: Final[dict[str, PriorityPolicy]] = {
    p.name: p
    for p in (
        PriorityPolicy("qs", "longest queue first", ("queue_size",), _same("queue_size")),
        PriorityPolicy(
            "hr", "highest rate of results first", ("highest_rate",), _same("highest_rate"), logarithmic=True
        ),
        PriorityPolicy("fcfs", "oldest row first", ("head_age_s",), _same("head_age_s")),
        PriorityPolicy(
            "ioq",
            "first who can pass it on",
            ("input_output_queue",),
            _same("input_output_queue"),
            logarithmic=True,
            holds_back=False,
        ),
        PriorityPolicy("slack", "least slack first", ("head_age_s", "deadline_share"), _slack, logarithmic=True),
        PriorityPolicy("random", "random priorities", (), _random, holds_back=False),
        PriorityPolicy("constant", "all alike", (), _constant, holds_back=False),
    )
}
"""Every policy by its name."""
