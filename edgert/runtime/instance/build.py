"""From a plan to what runs: instances with their logic and queues, connected, and their stages."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from edgert.core.results.result_schema import Schema
from edgert.flow.physical import fields_named, fields_needed
from edgert.flow.plan import Output, PhysicalInstance, Plan, uncopied
from edgert.flow.spec import Registry
from edgert.operators.base.error_boundary import ErrorBoundary, as_errors
from edgert.operators.base.inline import time_use
from edgert.operators.base.logic import Build, Logic
from edgert.operators.fusion.chain import Chain
from edgert.operators.fusion.compiled_region import CompiledRegion
from edgert.operators.fusion.region import Region, StageEdge
from edgert.operators.sources.device_watermarks import new_board
from edgert.operators.sources.source import Source
from edgert.operators.state.partitioning import Divider
from edgert.runtime.instance.edges import InputWatermarks, Spread, Target
from edgert.runtime.instance.inner_queue import InnerQueue
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Queue
from edgert.runtime.instance.source_queue import OWED_BYTES, SourceQueue

QUEUE_BYTES = 4_194_304


@dataclass(frozen=True, slots=True)
class Stage:
    """An instance, or one operator (or chain) of a fused one, with a name, a state and counters of its own."""

    planned: PhysicalInstance
    instance: Instance
    logic: Logic
    number: int = 0
    """Index of the stage in its instance."""

    @property
    def boundary(self) -> ErrorBoundary:
        """Stands around its logic."""
        return self.instance.boundaries[self.number]

    @property
    def rows_in(self) -> int:
        """Rows (for a source: messages) taken since the start of the process."""
        region = self.instance.region
        return region.took[self.number] if region else self.instance.counters.rows_in

    @property
    def rows_out(self) -> int:
        """Rows given on since the start of the process."""
        region = self.instance.region
        return region.gave[self.number] if region else self.instance.counters.rows_out

    @property
    def busy_s(self) -> float:
        """Time spent computing since the start of the process (T_C); in a region, as samples share it out."""
        region = self.instance.region
        return region.busy_s[self.number] if region else self.instance.counters.busy_s

    @property
    def entrances(self) -> range:
        """The instance's inputs by which rows come here, one for each input of its own."""
        region = self.instance.region
        return region.entrances(self.number) if region else range(max(1, len(self.planned.inputs)))


@dataclass(frozen=True, slots=True)
class Built:
    """A plan and what became of it."""

    plan: Plan
    registry: Registry
    instances: Mapping[str, Instance]
    stages: Mapping[str, Stage]
    """Stages by name, in the plan's order."""


@as_errors()
def build(physical: Plan, registry: Registry, here: Container[str] | None = None) -> Built:
    """Instances with fresh logic, connected. `here`: names of those that run in this process, if not all do; of the
    others only what is needed of them here is made."""
    instances = _instances(physical, registry, here)
    stages = _stages(physical, instances)
    _say_who_is_heeded(physical, stages)
    return Built(physical, registry, instances, stages)


def _instances(physical: Plan, registry: Registry, here: Container[str] | None) -> dict[str, Instance]:
    instances: dict[str, Instance] = {}
    for planned in physical.instances.values():
        logic = _logic(planned, physical, registry, here is None or planned.name in here)
        instances[planned.name] = Instance(planned.name, planned.operators, planned.kind, logic, _queue(planned))
    for planned in physical.instances.values():
        instance = instances[planned.name]
        for (_, port), outputs in groupby(planned.outputs, lambda o: (uncopied(o.instance)[0], o.port)):
            instance.edges.outputs.setdefault(port, []).append(_target(list(outputs), instances))
        instance.edges.watermarks = {
            n: InputWatermarks(feeders) for n, feeders in enumerate(planned.feeders) if feeders > 1
        }
        forks = len({o.instance for o in planned.outputs}) > 1 or any(not stage.outputs for stage in planned.stages)
        for fed in instance.edges.reaches():
            fed.edges.beside = fed.edges.beside or forks
            fed.queue.overload = instance.queue.overload
    for copies in physical.sets():
        if len(copies) > 1 and copies[0].kind == "source":
            board = new_board(len(copies))
            for seat, planned in enumerate(copies):
                _source_in(instances[planned.name].logic).join(board, seat)
    return instances


def _target(outputs: Sequence[Output], instances: Mapping[str, Instance]) -> Target[Instance] | Spread[Instance]:
    """The far end of an edge, from its outputs to the copies there."""
    targets = [Target(instances[o.instance], o.input, o.producer) for o in outputs]
    if len(targets) == 1:
        return targets[0]
    division = outputs[0].division
    return Spread(targets, Divider(division.keys, len(targets)).divide if division.kind == "key" else None)


def _source_in(logic: Logic) -> Source:
    first = logic.stages[0] if isinstance(logic, Region) else logic
    if not isinstance(first, Source):
        raise TypeError(f"expected a source that can be split, got {type(first).__name__}")
    return first


def _stages(physical: Plan, instances: Mapping[str, Instance]) -> dict[str, Stage]:
    stages = {}
    for planned in physical.instances.values():
        instance = instances[planned.name]
        logics = instance.logic.stages if isinstance(instance.logic, Region) else (instance.logic,)
        for number, (one, logic) in enumerate(zip(planned.stages or (planned,), logics, strict=True)):
            stage = stages[one.name] = Stage(one, instance, logic, number)
            stage.boundary.flow, stage.boundary.operator = physical.flow.name, one.name
            stage.boundary.policy = physical.flow.on_error
    return stages


def _say_who_is_heeded(physical: Plan, stages: Mapping[str, Stage]) -> None:
    """Tells each source whether its watermark matters to anybody behind it."""
    first = {instance.name: instance.stages[0].name for instance in physical.instances.values() if instance.stages}
    matters: dict[str, bool] = {}
    for name, stage in reversed(list(stages.items())):  # each after all that it feeds
        matters[name] = False
        for output in stage.planned.outputs:
            behind = first.get(output.instance, output.instance)
            use = time_use(stages[behind].logic, output.input)
            matters[name] |= use == "heeds" or (use == "passes" and matters[behind])
        if isinstance(stage.logic, Source):
            stage.logic.heeded = matters[name]


def _queue(planned: PhysicalInstance) -> Queue:
    """Only a source sheds, and never what an acknowledgement is owed for, which is the newest. So at QoS 1 or 2 there
    is room for all of that; a queue that keeps older ones has its budget for those beside it."""
    if planned.kind != "source":
        return InnerQueue(QUEUE_BYTES)
    budget, overload = planned.parameters["queue_bytes"], planned.parameters["overload"]
    if planned.parameters["qos"]:
        budget = max(budget, OWED_BYTES) if overload == "shed-oldest" else budget + OWED_BYTES
    return SourceQueue(budget, overload)


def _logic(planned: PhysicalInstance, physical: Plan, registry: Registry, here: bool) -> Logic:
    """The logic of one planned instance; or what stands for it, if it does not run here."""
    if planned.stages:
        stages = [_logic(stage, physical, registry, here) for stage in planned.stages]
        at = {stage.name: number for number, stage in enumerate(planned.stages)}
        edges = [
            StageEdge(number, output.port, at[output.instance], output.input)
            for number, stage in enumerate(planned.stages)
            for output in stage.outputs
            if output.instance in at
        ]
        kind = CompiledRegion if CompiledRegion.fits(stages, edges) else Region
        return kind(stages, edges, planned.exits, len(planned.inputs))
    node = planned.nodes[0]
    if planned.kind == "stateless":
        return Chain(planned.nodes, planned.live)
    make = registry[node.type].logic
    if make is None:
        raise TypeError(f"operator type {node.type} has no logic: its specification must say `logic=...`")
    if not here and (other := _stand_in(planned, registry)):
        return other
    needed = fields_needed(physical.flow, registry, node.name) if planned.kind == "source" else None
    named = fields_named(physical.flow, registry, node.name) if planned.kind == "source" else frozenset()
    ports = frozenset(output.port for output in planned.outputs)
    logic: object = make(Build(node, physical.flow, needed, planned.keys, len(planned.inputs), ports, named))
    if not isinstance(logic, Logic) or not hasattr(logic, "drops"):  # a package's operator may return anything
        raise TypeError(f"the logic of operator type {node.type} must be a Logic, and call super().__init__()")
    return logic


def schema_of(physical: Plan) -> Schema | None:
    """The schema of the flow's contributions; None if it ships nothing."""
    flow = physical.flow
    ship = next((node for node in flow.nodes.values() if node.type == "ship"), None)
    if ship is None:
        return None
    window = next(stage for stage in physical.stages() if stage.operators == ship.inputs)
    aggregates: Iterable[Any] = window.parameters["aggregates"]
    return Schema(window.parameters["size_s"], tuple(window.keys), tuple((a.name, a.function) for a in aggregates))


class StandIn(Logic):
    """Stands for the logic of an operator of this library that runs in another process: it takes nothing, and holds
    nothing in memory.

    The graph of a flow is built whole in each process that it runs in, and in the daemon that feeds them. What all of
    them use of it is real everywhere: sources (what is known of devices), chains (models are checked by them) and our
    sinks.
    """


class ForeignStandIn(StandIn):
    """The stand-in for a package's operator, and treated as one: see `edgert.operators.base.logic.foreign`."""

    __module__ = "elsewhere"


def _stand_in(planned: PhysicalInstance, registry: Registry) -> Logic | None:
    """The stand-in for the logic of one planned, unfused instance; None if the real logic is needed."""
    ours = registry[planned.nodes[0].type].ours
    if planned.kind in ("source", "stateless") or (ours and planned.kind == "sink"):
        return None
    return StandIn() if ours else ForeignStandIn()
