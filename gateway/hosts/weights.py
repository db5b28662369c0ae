"""Weights that operators of flows were given, for as long as the gateway runs: a rebuild of a flow, another version of
it and a slot that starts again begin with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edgert.core.errors import DocumentError, EdgertError, Problem, show
from edgert.runtime.flow_run import FlowRun
from edgert.scheduling.shares import checked_weight


class Weights:
    """Weights by flow and operator; the default is 1."""

    def __init__(self) -> None:
        self._given: dict[str, dict[str, float]] = {}

    def put_untrusted(self, flow: str, weights: Mapping[str, object], runs: Iterable[FlowRun]) -> list[FlowRun]:
        """Notes weights of operators (or instances: `minute#2`), all of them or none; returns those of `runs` that are
        of the flow. Raises `EdgertError` for a flow that does not run, or with all that is wrong with the weights."""
        every = list(runs)
        of_flow = [run for run in every if run.flow.name == flow]
        if not of_flow:
            running = ", ".join(sorted({run.flow.name for run in every})) or "none"
            raise EdgertError(f"expected a running flow, one of {running}, got {show(flow)}")
        instances = [instance for run in of_flow for instance in run.all]
        named = sorted({name for one in instances for name in (one.name, *one.operators)})
        problems: list[Problem] = []
        for operator, weight in weights.items():
            if operator not in named:
                problems.append(Problem("operator", f"one of {', '.join(named)}", show(operator)))
            try:
                checked_weight(weight)
            except ValueError as error:
                problems.append(Problem(f"weight of {show(operator)}", *_expected_and_got(error)))
        if problems:
            raise DocumentError(f"weights of flow {flow}", problems)
        given = self._given.setdefault(flow, {})
        given |= {operator: checked_weight(weight) for operator, weight in weights.items()}
        return of_flow

    def of(self, run: FlowRun) -> dict[str, float]:
        """Weights by instance, of those with a weight for an operator. A fused instance has the greatest weight of its
        operators, as each of them needs the instance to run. Each copy of an operator has the operator's whole
        weight."""
        given = self._given.get(run.flow.name, {})
        found: dict[str, float] = {}
        for instance in run.all if given else ():
            if weights := [given[name] for name in (instance.name, *instance.operators) if name in given]:
                found[instance.name] = max(weights)
        return found

    def forget(self, flow: str) -> None:
        """Deployed again, the flow is a new one."""
        self._given.pop(flow, None)


def _expected_and_got(error: ValueError) -> tuple[str, str]:
    expected, _, got = str(error).removeprefix("expected ").partition(", got ")
    return expected, got
