"""A flow as a simulated gateway runs it: the instances of a plan, what rows cost in them, and where rows go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgert.flow.graph import Flow
from edgert.flow.physical import plan
from edgert.flow.plan import Location, PhysicalInstance, copy_name, operator_copies
from edgert.flow.spec import Registry
from edgert.scheduling.profile import Profile
from edgert.sim.flows import model

FREE = Profile(0.0, 1.0)
"""Profile of a marker: it does nothing."""


@dataclass(frozen=True, slots=True)
class SimulatedInstance:
    """One instance of a plan."""

    name: str
    operators: tuple[str, ...]
    """Without the numbers of copies, as figures name them."""
    head: str
    """Its first operator copy: rows that wait for the instance wait under this name, whatever the plan."""
    kind: str
    gateway: str
    cost_s: float
    """Core-seconds per row that enters, on the core on which costs were measured."""
    gives: tuple[tuple[str, str, str, float], ...]
    """Where rows go: instance, its head, its gateway, rows per row that enters."""
    ends: float
    """Rows that leave the flow here, per row that enters."""


@dataclass(frozen=True, slots=True)
class PlanShape:
    """The instances of a plan, each after all that feed it."""

    instances: tuple[SimulatedInstance, ...]
    heads: Mapping[str, str]
    """Operator copy -> head of the instance in which it runs."""


class PlanShapes:
    """The shapes of one flow, by assignment. `profiles`: of each operator copy."""

    def __init__(self, flow: Flow, registry: Registry, profiles: Mapping[str, Profile], row_bytes: float) -> None:
        self.flow, self._registry, self._profiles, self.row_bytes = flow, registry, profiles, row_bytes
        self._made: dict[frozenset[tuple[str, str]], PlanShape] = {}
        self.operators = self._checked()

    def _checked(self) -> dict[str, dict[str, Any]]:
        """The answer of a gateway to `part.check`."""
        copies = {name: operator_copies(node) for name, node in self.flow.nodes.items()}
        return {
            copy: {
                "source": self._registry[node.type].role == "source",
                "type": node.type,
                "inputs": [other for i in node.inputs for other in copies[i]],
            }
            for name, node in self.flow.nodes.items()
            for copy in copies[name]
        }

    def of(self, assignment: Mapping[str, str]) -> PlanShape:
        """The instances where operator copies run on these gateways."""
        key = frozenset(assignment.items())
        if key not in self._made:
            self._made[key] = self._make(assignment)
        return self._made[key]

    def _make(self, assignment: Mapping[str, str]) -> PlanShape:
        located = {copy: Location(gateway) for copy, gateway in assignment.items()}
        physical = plan(self.flow, self._registry, "full", assignment=located)
        made = model(physical, {stage.name: self._profile(stage) for i in physical.instances.values() for stage in
                                (i, *i.stages)})  # fmt: skip
        number = {name: n for n, name in enumerate(physical.instances)}
        alike = {name: len(copies) for copies in physical.sets() for name in [copy.name for copy in copies]}
        head = {name: copy_name(i.operators[0], i.copy) for name, i in physical.instances.items()}
        at = {name: i.location.gateway if i.location else "" for name, i in physical.instances.items()}
        instances = []
        for name, one in physical.instances.items():
            n = number[name]
            fed = dict.fromkeys(output.instance for output in one.outputs)
            gives = tuple((to, head[to], at[to], made.gives[n, number[to]] / alike[to]) for to in fed)
            cost_s = made.profiles[n].cost_s
            instances.append(
                SimulatedInstance(name, one.operators, head[name], one.kind, at[name], cost_s, gives, made.ends[n])
            )
        heads = {copy_name(o, i.copy): head[name] for name, i in physical.instances.items() for o in i.operators}
        return PlanShape(tuple(instances), heads)

    def _profile(self, stage: PhysicalInstance) -> Profile:
        """Returns the profile of operators that follow each other in one stage."""
        cost_s, rows = 0.0, 1.0
        for operator in stage.operators:
            one = self._profiles.get(copy_name(operator, stage.copy), FREE)
            cost_s += rows * one.cost_s
            rows *= one.selectivity
        return Profile(cost_s, rows)
