"""A planned flow as what the simulated pool runs: each instance with what its rows and turns cost, and where rows go.

Costs are known of stages (operators, or chains of stateless ones): a region costs what its stages do, for each row that
enters it as often as one reaches them. What turns cost beside their rows was measured with RIoTBench's PRED on a server
core of about 2021: for `TURN_S` with turns that follow each other, for the rest with reads 5 ms apart, as a gateway
has them. Then the caches are cold again, and that is most of what few rows cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from edgert.flow.plan import PhysicalInstance, Plan, uncopied
from edgert.scheduling.profile import Profile
from edgert.scheduling.queueing import input_ratios

TURN_S: Final = 20e-6
"""Overhead of a turn of any instance: queue, choice and counters."""
WAKE_S: Final = 80e-6
"""Overhead of a source: the reading thread wakes and routes what it read."""
STAGE_S: Final = 20e-6
"""In each stage: its code and its state come into the caches anew. A gateway's status counts it with the rows."""
DECODER_S: Final = 70e-6
"""In a source, beside that: what decodes messages does. It is counted so, too."""


class FlowModel(NamedTuple):
    """Arguments of `edgert.sim.pool.Simulation`, by name; instances by number, in the plan's order."""

    downstream: dict[int, list[int]]
    profiles: dict[int, Profile]
    turn_s: dict[int, float]
    cold_s: dict[int, float]
    copies: list[list[int]]
    gives: dict[tuple[int, int], float]
    ends: dict[int, float]


class _Inside(NamedTuple):
    """Figures of one instance per row that enters it."""

    cost_s: float
    gives: dict[str, float]
    """Rows to each instance that it feeds (all copies of one together)."""
    ends: float
    """Rows that reach a sink in it."""


def model(physical: Plan, profiles: Mapping[str, Profile], slower: float = 1.0) -> FlowModel:
    """`profiles` are those of all stages, by name, on a board that is so many times `slower` (for its turns)."""
    at = {name: number for number, name in enumerate(physical.instances)}
    made = FlowModel({}, {}, {}, {}, [[at[copy.name] for copy in alike] for alike in physical.sets()], {}, {})
    for name, instance in physical.instances.items():
        k, inside = at[name], _inside(instance, profiles)
        fed = dict.fromkeys(output.instance for output in instance.outputs)
        made.downstream[k] = [at[to] for to in fed]
        made.gives.update({(k, at[to]): inside.gives[_set(to)] for to in fed})
        made.ends[k] = inside.ends
        # policies know what a gateway does: a row's cost, and how many it gives, not to whom
        given = sum(inside.gives.values())
        mean = Profile(inside.cost_s, given / len(inside.gives), given / len(fed)) if fed else None
        made.profiles[k] = mean or Profile(inside.cost_s, 1.0)
        stages = instance.stages or (instance,)
        woken_s = WAKE_S + DECODER_S if stages[0].kind == "source" else 0.0
        made.turn_s[k] = TURN_S * slower
        made.cold_s[k] = (STAGE_S * len(stages) + woken_s) * slower
    return made


def rows_per_row(apart: Plan, profiles: Mapping[str, Profile]) -> dict[str, float]:
    """Rows that each instance gets per row that enters a source, of a plan without regions: copies get equal parts of
    what one would get."""
    sets = {_set(copies[0].name): copies for copies in apart.sets()}
    number = {name: n for n, name in enumerate(sets)}
    graph, means = {}, {}
    for name, copies in sets.items():
        graph[number[name]] = list(dict.fromkeys(number[_set(output.instance)] for output in copies[0].outputs))
        own = [profiles[copy.name] for copy in copies]
        costs_s, selectivities, *_ = zip(*own, strict=True)
        means[number[name]] = Profile(sum(costs_s) / len(own), sum(selectivities) / len(own))
    ratios = input_ratios(graph, means)
    return {copy.name: ratios[number[name]] / len(copies) for name, copies in sets.items() for copy in copies}


def _inside(instance: PhysicalInstance, profiles: Mapping[str, Profile]) -> _Inside:
    stages = instance.stages or (instance,)
    number = {stage.name: n for n, stage in enumerate(stages)}
    own = {n: profiles[stage.name] for n, stage in enumerate(stages)}
    came = input_ratios(
        {n: [number[o.instance] for o in stage.outputs if o.instance in number] for n, stage in enumerate(stages)}, own
    )
    gives: dict[str, float] = {}
    exits = [(_set(o.instance), instance.exits[o.port][0] if instance.exits else 0) for o in instance.outputs]
    for to, stage in dict.fromkeys(exits):
        gives[to] = gives.get(to, 0.0) + came[stage] * own[stage].selectivity
    cost_s = sum(came[n] * profile.cost_s for n, profile in own.items())
    return _Inside(cost_s, gives, sum(came[n] for n, stage in enumerate(stages) if not stage.outputs))


def _set(name: str) -> str:
    return uncopied(name)[0]
