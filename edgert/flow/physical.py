"""Logical graph to physical instances: chains of stateless operators are fused, markers vanish.

    readings ─ valid ─ derived ─ by_sensor ─ minute ─ central
    source     filter  map       key_by      window   ship

becomes `readings`, `valid+derived+by_sensor`, `minute` (keyed by by_sensor's key), `central`: the fewer instances,
the fewer queues, and a fused chain is one compiled function. Then an instance is fused with the only
one that feeds it, directly or through others, to a region (`edgert.operators.fusion.region`); here all four. Last, an
operator with `instances = k` becomes k copies (`edgert.flow.fission`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from edgert.flow.fission import copies_of, divided_behind, division, split
from edgert.flow.graph import Flow, Node
from edgert.flow.plan import FORWARD, Assignment, Division, OperatorKind, Output, PhysicalInstance, Plan, copy_name
from edgert.flow.spec import FieldUse, Keys, OperatorSpec, Registry
from edgert.flow.structure import ALWAYS, keys_above

Fusion = Literal["full", "lines", "chains", "none"]
"""Degree of fusion: regions (all instances that one instance alone feeds, directly or not), lines (regions without a
branch), chains of stateless operators only, or none."""


def plan(
    flow: Flow,
    registry: Registry,
    fusion: Fusion = "full",
    *,
    fission: bool = True,
    assignment: Assignment = MappingProxyType({}),
    number: int = 0,
) -> Plan:
    """The physical graph of `flow`: pure, and the same for the same flow and assignment. Without `fission` there is one
    copy of each operator, whatever the document asks for. No instance has operators of two locations; an operator that
    the assignment does not name runs where its document asks, or anywhere. `number`: see `Plan`."""
    places = _Places(assignment, fission)
    groups = [g for g in _groups(flow, registry, places, fusion != "none") if not _vanishes(g, registry)]
    home = {node.name: _name(g) for g in groups for node in g}
    for node in flow.nodes.values():  # in topological order: what feeds a vanished marker has its home already
        if node.name not in home:
            home[node.name] = home[node.inputs[0]]
    inputs = {_name(g): tuple(dict.fromkeys(home[i] for i in g[0].inputs)) for g in groups}
    copies = {_name(g): copies_of(g) if fission else 1 for g in groups}
    edges = _edges(flow, registry, groups, inputs, copies)
    behind = _fields_behind(flow, registry)
    instances = {}
    for group in groups:
        name, spec = _name(group), registry[group[-1].type]
        outputs = tuple(
            Output(to, registry[other[0].type].reads_port, inputs[to].index(name), edges[name, to])
            for other in groups
            if name in inputs[to := _name(other)]
        )
        kind = _kind(spec)
        keys = keys_above(flow, registry, group[0].name) if kind == "stateful" else ()
        feeders = tuple(1 if edges[i, name] == FORWARD else copies[i] for i in inputs[name])
        instances[name] = PhysicalInstance(
            name, kind, tuple(group), inputs[name], outputs, keys, behind[group[-1].name], feeders=feeders
        )
    made = Plan(flow, instances, home, number)
    if fusion in ("full", "lines"):
        # where a row that is to be tried again holds up its instance, it is not to hold up other branches
        made = _with_regions(made, registry, places, lines=fusion == "lines" or flow.on_error.action == "retry")
    for instance in made.instances.values():
        copies[instance.name] = copies[(instance.stages or (instance,))[0].name]
    located = {name: places.located(instance, registry) for name, instance in split(made.instances, copies).items()}
    return replace(made, instances=located)


class _Places:
    """Locations given to operators by the assignment and the document."""

    def __init__(self, assignment: Assignment, fission: bool) -> None:
        self._assignment, self.fission = assignment, fission

    def of(self, nodes: Sequence[Node], registry: Registry) -> Hashable:
        """Returns a key that is equal for operators that may share an instance: the location of each copy, or the slot
        that the document asks for. None for markers, which run where others do."""
        node = next((n for n in nodes if registry[n.type].keys is None), None)
        if node is None:
            return None
        copies = node.instances if self.fission else 1
        names = [copy_name(node.name, number) for number in (range(1, copies + 1) if copies > 1 else (0,))]
        found = tuple(self._assignment.get(name) for name in names)
        return node.slot if None in found else found

    def located(self, instance: PhysicalInstance, registry: Registry) -> PhysicalInstance:
        """The instance with the location that the assignment gives it, if any. Markers in it do not count: they run at
        the locations of others."""
        nodes = sorted(instance.nodes, key=lambda node: registry[node.type].keys is not None)
        names = (copy_name(node.name, instance.copy) for node in nodes)
        found = next((self._assignment[name] for name in names if name in self._assignment), None)
        stages = tuple(replace(stage, location=found) for stage in instance.stages)
        return replace(instance, location=found, stages=stages)


def _edges(
    flow: Flow,
    registry: Registry,
    groups: list[list[Node]],
    inputs: Mapping[str, tuple[str, ...]],
    copies: Mapping[str, int],
) -> dict[tuple[str, str], Division]:
    """How rows are divided, by (from, to)."""
    edges: dict[tuple[str, str], Division] = {}
    divided: dict[str, Keys | None] = {}
    for group in groups:  # each after all that feed it
        name = _name(group)
        for i in inputs[name]:
            edges[i, name] = division(flow, registry, group, (copies[i], copies[name]), divided[i])
        divided[name] = divided_behind(flow, registry, group, [(edges[i, name], divided[i]) for i in inputs[name]])
    return edges


def _with_regions(made: Plan, registry: Registry, places: _Places, *, lines: bool) -> Plan:
    """Instances that read nothing but what comes from one region, with it. With `lines` none has a branch."""
    region_of: dict[str, list[PhysicalInstance]] = {}
    for instance in made.instances.values():  # each after all that feed it
        feeders = [made.instances[name] for name in instance.inputs]
        regions = [region_of[feeder.name] for feeder in feeders]
        fits = (
            bool(regions)
            and all(region is regions[0] for region in regions)
            and _beside(instance, feeders, registry, places)
        )
        # a package's operator may wait for something, and must not delay operators that do not read it
        if fits and (_in_line(regions[0]) or not (lines or _foreign(instance, registry))):
            regions[0].append(instance)
            region_of[instance.name] = regions[0]
        else:
            region_of[instance.name] = [instance]
    name_of = {name: "+".join(stage.name for stage in region) for name, region in region_of.items()}
    instances: dict[str, PhysicalInstance] = {}
    for name, stages in region_of.items():
        if stages[0].name == name:
            instances[name_of[name]] = _region(stages, name_of)
    return replace(made, instances=instances)


def _beside(
    instance: PhysicalInstance, feeders: Sequence[PhysicalInstance], registry: Registry, places: _Places
) -> bool:
    """True if each copy of the instance takes its rows at the location of the copies that feed it."""
    divisions = {output.division for feeder in feeders for output in feeder.outputs if output.instance == instance.name}
    at = {places.of(one.nodes, registry) for one in (instance, *feeders)}
    return divisions == {FORWARD} and len(at) == 1


def _in_line(region: Sequence[PhysicalInstance]) -> bool:
    return all(len(stage.outputs) == 1 for stage in region)


def _foreign(instance: PhysicalInstance, registry: Registry) -> bool:
    return not all(registry[node.type].ours for node in instance.nodes)


def _region(stages: Sequence[PhysicalInstance], name_of: Mapping[str, str]) -> PhysicalInstance:
    first = stages[0]
    inside = {stage.name for stage in stages}
    leaving = [
        (number, output)
        for number, stage in enumerate(stages)
        for output in stage.outputs
        if output.instance not in inside
    ]
    exits = tuple(dict.fromkeys((number, output.port) for number, output in leaving))
    return replace(
        first,
        name=name_of[first.name],
        nodes=tuple(node for stage in stages for node in stage.nodes),
        inputs=tuple(name_of[i] for i in first.inputs),
        outputs=tuple(
            output._replace(
                instance=name_of[output.instance],
                port=exits.index((number, output.port)) if len(stages) > 1 else output.port,
            )
            for number, output in leaving
        ),
        keys=next((stage.keys for stage in stages if stage.keys), ()),
        live=stages[-1].live,
        stages=tuple(stages) if len(stages) > 1 else (),
        exits=exits if len(stages) > 1 else (),
    )


def _groups(flow: Flow, registry: Registry, places: _Places, chains: bool) -> list[list[Node]]:
    """Maximal linear chains of stateless operators of as many copies (with `chains`); every other one by itself."""
    groups: list[list[Node]] = []
    last: dict[str, list[Node]] = {}
    for node in flow.nodes.values():
        fits = chains and len(node.inputs) == 1 and registry[node.type].stateless
        group = last.get(node.inputs[0]) if fits else None
        if group is not None and len(flow.outputs(node.inputs[0])) == 1 and registry[group[-1].type].stateless:
            marker = _vanishes([node], registry) or _vanishes(group, registry)  # which runs wherever others do
            as_many = not places.fission or copies_of(group) == node.instances
            alike = as_many and places.of(group, registry) == places.of([node], registry)
            if marker or alike:
                group.append(node)
                last[node.name] = group
                continue
        groups.append([node])
        last[node.name] = groups[-1]
    return groups


def _vanishes(group: list[Node], registry: Registry) -> bool:
    return all(registry[n.type].keys is not None for n in group)


def _name(group: list[Node]) -> str:
    return "+".join(n.name for n in group)


def _kind(spec: OperatorSpec) -> OperatorKind:
    if spec.role != "inner":
        return spec.role
    return "stateless" if spec.stateless else "stateful"


def fields_needed(flow: Flow, registry: Registry, source: str) -> frozenset[str] | None:
    """The fields (beside `time` and `source`) that are used behind `source`, so that its decoder builds no others.

    None means all of them: for instance when rows reach a `publish` without a `select` before it.
    """
    needed = _fields_behind(flow, registry)[source]
    return None if needed is None else needed - ALWAYS


def fields_named(flow: Flow, registry: Registry, source: str) -> frozenset[str]:
    """The fields (beside `time` and `source`) of the rows of `source` that operators behind it read by their names."""
    return (_fields_behind(flow, registry, by_name=True)[source] or frozenset()) - ALWAYS


def _fields_behind(flow: Flow, registry: Registry, *, by_name: bool = False) -> dict[str, frozenset[str] | None]:
    """Per operator: the fields of its output rows at which any operator behind it looks (None: all). `by_name`: an
    operator that looks at all fields looks at none."""
    behind: dict[str, frozenset[str] | None] = {}
    wanted: dict[str, list[frozenset[str] | None]] = {name: [] for name in flow.nodes}
    for node in reversed(tuple(flow.nodes.values())):
        after = behind[node.name] = _union(wanted[node.name])
        stateful = _kind(registry[node.type]) == "stateful"
        keys = keys_above(flow, registry, node.name) if stateful else ()  # the marker only names them: it is read here
        for name, use in registry[node.type].uses(node):
            reads = use.reads
            if by_name:
                reads = (reads or use.names) | (use.keeps or frozenset())
            wanted[name] += (_through(use, after), reads, frozenset(key for key, _ in keys))
    return behind


def _through(use: FieldUse, after: frozenset[str] | None) -> frozenset[str] | None:
    """The fields used by anything `after` an operator that come from before that operator."""
    if use.keeps is not None:
        return use.keeps if after is None else use.keeps & after
    return after if after is None or use.writes is None else after - use.writes


def _union(parts: list[frozenset[str] | None]) -> frozenset[str] | None:
    some = [p for p in parts if p is not None]
    return None if len(some) < len(parts) else frozenset().union(*some)
