"""The metric provider (Lachesis §5.2, Algorithm 3): metrics with declared dependencies, resolved per driver.

A driver provides some metrics itself; the others are computed from their dependencies, once per period and driver. A
metric that a driver does not provide and that has no dependencies is a configuration error.

Metrics that begin with `remote_` belong to operators on other boards, whose agents told them
(`agent.osched.cooperation`). They are optional: without them a path ends where it leaves the board.

Units: seconds, rows, rows per row. `rows_in`, `rows_out`, `busy_s` and `span_s` are sums over the recent past
(`agent.drivers.recent_sums`), so that their ratios are averages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agent.drivers.entities import EngineReport, Operator, Values, downstream_first, predecessors
from edgert.core.errors import EdgertError

Compute = Callable[[Sequence[Operator], Mapping[str, Values]], Values]
"""(operators downstream first, dependency -> values) -> values."""


class MetricError(EdgertError):
    """A metric cannot be had from a driver; the message names the missing primitive and what needed it."""


@dataclass(frozen=True, slots=True)
class OperatorMetric:
    """A metric. One without `compute` is primitive: only a driver can provide it."""

    name: str
    about: str
    dependencies: tuple[str, ...] = ()
    compute: Compute | None = None
    optional: tuple[str, ...] = ()
    """Dependencies that count as empty where they are not provided."""


class MetricProvider:
    """Computes the metrics of one report; make a new one for each period (its cache is the period's)."""

    def __init__(self, report: EngineReport, metrics: Mapping[str, OperatorMetric] | None = None) -> None:
        self._report = report
        self._metrics = METRICS if metrics is None else metrics
        self._cache: dict[str, Values] = {}
        self._ordered: list[Operator] | None = None

    def get(self, name: str) -> Values:
        """Values of the metric `name`. Raises `MetricError`, and `EntityError` for a report that contradicts itself."""
        return self._resolve(name, ())

    def _resolve(self, name: str, needed_by: tuple[str, ...]) -> Values:
        if name in self._cache:
            return self._cache[name]
        if name in self._report.metrics:
            return self._report.metrics[name]
        metric = self._metrics.get(name)
        if metric is None or metric.compute is None:
            raise MetricError(self._missing(name, metric, needed_by))
        path = (*needed_by, name)
        given = {d: self._resolve(d, path) for d in metric.dependencies}
        given |= {d: self._report.metrics.get(d, {}) for d in metric.optional}
        values = metric.compute(self._operators(), given)
        self._cache[name] = values
        return values

    def _operators(self) -> list[Operator]:
        if self._ordered is None:
            self._ordered = downstream_first(self._report.driver, self._report.operators)
        return self._ordered

    def _missing(self, name: str, metric: OperatorMetric | None, needed_by: tuple[str, ...]) -> str:
        noun = "a known metric" if metric is None else f"the metric {name}"
        needed = f", which {' → '.join(needed_by)} needs" if needed_by else ""
        provided = ", ".join(sorted(self._report.metrics)) or "none"
        return (
            f"driver {self._report.driver}: expected {noun}{needed}, got a driver without {name} "
            f"(it provides: {provided}); choose another policy for its queries"
        )


def primitives(name: str) -> set[str]:
    """The primitive metrics that `name` rests on where a driver provides nothing in between."""
    metric = METRICS[name]
    if metric.compute is None:
        return {name}
    return set().union(*map(primitives, metric.dependencies))


def closure(names: Iterable[str]) -> set[str]:
    """The metrics and all that they may rest on."""
    found, open_names = set[str](), list(names)
    while open_names:
        if (name := open_names.pop()) not in found:
            found.add(name)
            open_names += (*METRICS[name].dependencies, *METRICS[name].optional)
    return found


def _ratio(over: str, under: str) -> Compute:
    def compute(operators: Sequence[Operator], given: Mapping[str, Values]) -> Values:
        above, below = given[over], given[under]
        return {n: above[n] / below[n] for n in above if below.get(n, 0.0) > 0.0}

    return compute


def _queue_size(operators: Sequence[Operator], given: Mapping[str, Values]) -> Values:
    """Rows that the predecessors have sent and the operator has not taken; a source has no queue of its own."""
    sent, taken = given["rows_sent_total"], given["rows_taken_total"]
    found: dict[str, float] = {}
    for name, senders in predecessors(operators).items():
        if not senders:
            found[name] = 0.0
        elif name in taken and all(sender in sent for sender in senders):
            found[name] = max(0.0, sum(sent[sender] for sender in senders) - taken[name])
    return found


def _behind(operator: Operator, here: Mapping[str, float], remote: Values) -> list[float]:
    """Values of the successors, of those on other boards as far as they are known."""
    return [*(here[s] for s in operator.successors), *(remote[s] for s in operator.remote if s in remote)]


def _path_selectivity(operators: Sequence[Operator], given: Mapping[str, Values]) -> Values:
    """S_k = s_k Σ_j S_j over the successors j; 1 at a sink. An operator whose selectivity is unknown counts as 1."""
    selectivity, remote, found = given["selectivity"], given["remote_path_selectivity"], dict[str, float]()
    for operator in operators:
        after = _behind(operator, found, remote)
        found[operator.name] = selectivity.get(operator.name, 1.0) * sum(after) if after else 1.0
    return found


def _path_cost(operators: Sequence[Operator], given: Mapping[str, Values]) -> Values:
    """C_k = c_k + s_k Σ_j C_j over the successors j. An operator whose cost is unknown counts as free."""
    cost, selectivity, found = given["cost_s"], given["selectivity"], dict[str, float]()
    for operator in operators:
        after = sum(_behind(operator, found, given["remote_path_cost"]))
        found[operator.name] = cost.get(operator.name, 0.0) + selectivity.get(operator.name, 1.0) * after
    return found


def _input_output_queue(operators: Sequence[Operator], given: Mapping[str, Values]) -> Values:
    """(1 + own queue) / (1 + longest queue of a successor): less than 1 where the successors are congested."""
    queue, remote = given["queue_size"], given["remote_queue_size"]
    known = {**dict.fromkeys((s for o in operators for s in o.successors), 0.0), **queue}
    return {
        o.name: (1.0 + queue[o.name]) / (1.0 + max(_behind(o, known, remote), default=0.0))
        for o in operators
        if o.name in queue
    }


def _cost_after(operators: Sequence[Operator], given: Mapping[str, Values]) -> Values:
    """Cost of the dearest path from an operator on, its own included."""
    cost, found = given["cost_s"], dict[str, float]()
    for o in operators:
        behind = max(_behind(o, found, given["remote_cost_after"]), default=0.0)
        found[o.name] = cost.get(o.name, 0.0) + behind
    return found


def _cost_before(operators: Sequence[Operator], given: Mapping[str, Values]) -> Values:
    """Cost of the dearest path up to an operator, its own included."""
    cost, remote, found = given["cost_s"], given["remote_cost_before"], dict[str, float]()
    senders = predecessors(operators)
    for o in reversed(operators):
        before = max((*(found[p] for p in senders[o.name]), remote.get(o.name, 0.0)))
        found[o.name] = cost.get(o.name, 0.0) + before
    return found


def _deadline_share(operators: Sequence[Operator], given: Mapping[str, Values]) -> Values:
    """Part of a query's latency within which a row should be through an operator: cost up to it on the dearest path to
    it, over the cost of the dearest path through it. 1 at a sink; also where no cost is known."""
    cost, before, after = given["cost_s"], given["cost_before"], given["cost_after"]
    through = {n: before[n] + after[n] - cost.get(n, 0.0) for n in before}
    return {n: before[n] / through[n] if through[n] > 0.0 else 1.0 for n in before}


METRICS: Final[dict[str, OperatorMetric]] = {
    m.name: m
    for m in (
        OperatorMetric("rows_in", "rows taken in the recent past"),
        OperatorMetric("rows_out", "rows given in the recent past; of edgert to each successor, in the mean"),
        OperatorMetric("busy_s", "time in computation in the recent past, s"),
        OperatorMetric("span_s", "length of the recent past, s"),
        OperatorMetric("rows_sent_total", "rows given since the start"),
        OperatorMetric("rows_taken_total", "rows taken since the start"),
        OperatorMetric(
            "head_age_s", "time since the oldest row in the queue reached the engine, s; 0 for an empty queue"
        ),
        OperatorMetric("cpu_s", "CPU time of the operator's threads since their start, s"),
        OperatorMetric("run_wait_s", "time that the operator's threads waited for a core since their start, s"),
        OperatorMetric(
            "queue_size", "rows in the operator's queue", ("rows_sent_total", "rows_taken_total"), _queue_size
        ),
        OperatorMetric("cost_s", "computation per row, s", ("busy_s", "rows_in"), _ratio("busy_s", "rows_in")),
        OperatorMetric(
            "selectivity", "rows given per row taken", ("rows_out", "rows_in"), _ratio("rows_out", "rows_in")
        ),
        OperatorMetric(
            "utilisation", "part of the time in computation", ("busy_s", "span_s"), _ratio("busy_s", "span_s")
        ),
        OperatorMetric("remote_queue_size", "queue_size of successors on other boards"),
        OperatorMetric("remote_path_selectivity", "path_selectivity of successors on other boards"),
        OperatorMetric("remote_path_cost", "path_cost of successors on other boards, s"),
        OperatorMetric("remote_cost_after", "cost_after of successors on other boards, s"),
        OperatorMetric("remote_cost_before", "greatest cost_before of an operator's senders on other boards, s"),
        OperatorMetric(
            "path_selectivity",
            "results per row taken",
            ("selectivity",),
            _path_selectivity,
            ("remote_path_selectivity",),
        ),
        OperatorMetric(
            "path_cost",
            "computation per row on all paths to the sinks, s",
            ("cost_s", "selectivity"),
            _path_cost,
            ("remote_path_cost",),
        ),
        OperatorMetric(
            "highest_rate",
            "results per second of computation (Sharaf et al., TODS 33(1))",
            ("path_selectivity", "path_cost"),
            _ratio("path_selectivity", "path_cost"),
        ),
        OperatorMetric(
            "input_output_queue",
            "own queue over the longest one of a successor",
            ("queue_size",),
            _input_output_queue,
            ("remote_queue_size",),
        ),
        OperatorMetric(
            "cost_after", "cost of the dearest path from it on, s", ("cost_s",), _cost_after, ("remote_cost_after",)
        ),
        OperatorMetric(
            "cost_before", "cost of the dearest path up to it, s", ("cost_s",), _cost_before, ("remote_cost_before",)
        ),
        OperatorMetric(
            "deadline_share",
            "part of the latency until a row is through the operator",
            ("cost_s", "cost_before", "cost_after"),
            _deadline_share,
        ),
    )
}
"""Every metric that a policy may ask for."""
