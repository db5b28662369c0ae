"""Where the operators of one running flow should run: a heuristic's placement beside the one that runs now.

The problem holds everything that runs in the fleet, so that a board that other flows use counts as used; only operators
of the one flow may move. Costs and rates come from two readings of the figures (`agent.placement.problem.build`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from agent.placement.heuristics.registry import place
from agent.placement.problem.budget import Budget, Draw
from agent.placement.problem.build import BoardProfile, Figures, PlacementRule, build
from agent.placement.problem.cost import CostTerms, Evaluation, Rank
from agent.placement.problem.model import Placement, PlacementProblem
from edgert.flow.plan import copy_name, uncopied

TwoReadings = tuple[Figures, Figures]
"""An earlier reading of a gateway's figures and a later one."""
SEPARATOR: Final = "@"
"""Stands between the name of a flow that only one gateway has and that gateway: two gateways may have one of a name."""


@dataclass(frozen=True, slots=True)
class Score:
    """The judgement of a placement."""

    rank: Rank
    terms: CostTerms

    def plain(self) -> dict[str, float]:
        """Returns the proposal as JSON types."""
        return {"violation": self.rank.violation, "score": self.rank.score, **self.terms._asdict()}


@dataclass(frozen=True, slots=True)
class Proposal:
    """`before` and `after`: operator copy -> gateway, of the one flow."""

    heuristic: str
    before: dict[str, str]
    after: dict[str, str]
    now: Score
    then: Score

    @property
    def better(self) -> bool:
        """True if the new placement violates less, or as little with a better score."""
        return self.then.rank.better_than(self.now.rank)

    @property
    def moves(self) -> dict[str, str]:
        """Operators that would change their board."""
        return {operator: to for operator, to in self.after.items() if self.before[operator] != to}


def propose(
    flow: str,
    heuristic: str,
    readings: Mapping[str, TwoReadings],
    on: Placement,
    fleet: Collection[str],
    keep: Collection[str],
    profiles: Iterable[BoardProfile],
    rtt_s: Callable[[str, str], float],
    budget: Budget,
    draw: Draw,
    rules: Mapping[str, PlacementRule] | None = None,
) -> Proposal:
    """`readings` by gateway; `on`: where the flow's operator copies run; `fleet`: names of flows that run on several
    gateways; `keep`: operators (copies, or all copies of one) that stay. Operators that are fused move together.
    `rules`: pins and labels, by `FLOW/OPERATOR`. Raises `PlacementError`."""
    told = [(_apart(gateway, a, fleet), _apart(gateway, b, fleet)) for gateway, (a, b) in sorted(readings.items())]
    problem, placement = build(told, profiles, rtt_s, rules)
    inside = _operators(flow, (now for _, now in told), on)
    problem = _held(problem, placement, {name for name, copies in inside.items() if not _kept(copies, keep)})
    found = place(heuristic, problem, placement, budget, draw)
    after = {copy: found[name] for name, copies in inside.items() for copy in copies}
    return Proposal(heuristic, dict(on), {**on, **after}, _score(problem, placement), _score(problem, found))


def _apart(gateway: str, figures: Figures, fleet: Collection[str]) -> Figures:
    """The figures with names that are unique in the fleet."""
    flows = {name if name in fleet else name + SEPARATOR + gateway: told for name, told in figures["flows"].items()}
    return {**figures, "flows": flows}


def _operators(flow: str, figures: Iterable[Figures], on: Placement) -> dict[str, list[str]]:
    """Instance of the flow, as the problem names it -> the operator copies that were fused into it."""
    found: dict[str, list[str]] = {}
    for now in figures:
        instances: Mapping[str, Mapping[str, Any]] = now["flows"].get(flow, {}).get("instances", {})
        for name, told in instances.items():
            copies = [copy_name(operator, uncopied(name)[1]) for operator in told["operators"]]
            found[f"{flow}/{name}"] = [copy for copy in copies if copy in on]
    return found


def _kept(copies: Iterable[str], keep: Collection[str]) -> bool:
    return any(copy in keep or uncopied(copy)[0] in keep for copy in copies)


def _held(problem: PlacementProblem, placement: Placement, movable: Collection[str]) -> PlacementProblem:
    """Returns the problem in which all but the movable operators are pinned to where they are."""
    operators = [
        o if o.name in movable else replace(o, gateways=frozenset({placement[o.name]}), labels=frozenset())
        for o in problem.operators
    ]
    return PlacementProblem(tuple(operators), problem.edges, problem.boards, problem.latency_ms, problem.limit)


def _score(problem: PlacementProblem, placement: Placement) -> Score:
    evaluation = Evaluation(problem, problem.assignment(placement))
    return Score(evaluation.rank, evaluation.terms)
