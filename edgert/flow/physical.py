"""Logical graph to physical instances: chains of stateless operators are fused, markers vanish.

    readings ─ valid ─ derived ─ by_sensor ─ minute ─ central
    source     filter  map       key_by      window   ship

becomes `readings`, `valid+derived+by_sensor`, `minute` (keyed by what by_sensor says), `central`: the fewer instances,
the fewer queues, and a fused chain is one compiled function. Then whoever reads only what one other instance gives, or
what comes of that, is one instance with it, a region (`edgert.operators.region`); here all four. Last, an operator with
`instances = k` becomes k copies (`edgert.flow.fission`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from edgert.flow.fission import FORWARD, Division, copies_of, divided_behind, division, split
from edgert.flow.graph import Flow, Node
from edgert.flow.spec import FieldUse, Keys, OperatorSpec, Registry
from edgert.flow.structure import ALWAYS, keys_above

Kind = Literal["source", "stateless", "stateful", "sink"]


class Output(NamedTuple):
    """Where batches go: instance, the port at which this instance emits them, and which input of the other it is."""

    instance: str
    port: int
    input: int
    division: Division = FORWARD
    """How rows are divided among the copies of that instance; there is one output for each of them."""
    producer: int = 0
    """Which of the copies that feed that input this one is, from 0; of one that goes forward 0."""


@dataclass(frozen=True, slots=True)
class PhysicalInstance:
    """One instance: an operator, or several that were fused."""

    name: str
    """The operators' names joined by +; of copies with # and the number of the copy."""
    kind: Kind
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    """The instances that feed it, all copies of one as one (without #)."""
    outputs: tuple[Output, ...]
    keys: Keys = ()
    """(field, type) of the key, for stateful instances."""
    live: frozenset[str] | None = None
    """Fields of its output rows at which anything behind it looks (None: all)."""
    parts: tuple[PhysicalInstance, ...] = ()
    """Of several instances fused to a region: they, each after all that feed it, as they were planned without."""
    exits: tuple[tuple[int, int], ...] = ()
    """Of a region, by its own port: the part, and the port of that, by which rows leave."""
    feeders: tuple[int, ...] = ()
    """By input: how many instances feed it there, whose smallest watermark counts."""
    copies: int = 1
    """How many there are of it."""
    copy: int = 0
    """Which of them it is, from 1; 0 if it is the only one."""

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of the operators in it, in order."""
        return tuple(n.name for n in self.nodes)

    @property
    def slot(self) -> int:
        """The slot that its operators ask for; -1: none."""
        return _slot(self.nodes)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Parameters of the first operator (of the only one, except where several are fused)."""
        return self.nodes[0].parameters


@dataclass(frozen=True, slots=True)
class Plan:
    """A flow's instances, each after all that feed it."""

    flow: Flow
    instances: Mapping[str, PhysicalInstance]
    location: Mapping[str, str]
    """The instance, or the part of one, in which each operator runs (of copies the name that they have in common). A
    marker that vanished counts to the one that feeds it."""

    def sets(self) -> tuple[tuple[PhysicalInstance, ...], ...]:
        """The copies of each instance together, in the plan's order."""
        sets: dict[tuple[str, ...], list[PhysicalInstance]] = {}
        for instance in self.instances.values():
            sets.setdefault(instance.operators, []).append(instance)
        return tuple(map(tuple, sets.values()))

    def parts(self) -> Iterator[PhysicalInstance]:
        """Instances, or their parts: what has a name, state and counters of its own."""
        for instance in self.instances.values():
            yield from instance.parts or (instance,)

    def edges(self) -> Iterator[tuple[str, str]]:
        """From part to part, by name."""
        first = {i.name: (i.parts or (i,))[0].name for i in self.instances.values()}
        for part in self.parts():
            for output in part.outputs:
                yield part.name, first.get(output.instance, output.instance)


Fusion = Literal["full", "lines", "chains", "none"]
"""What is fused: regions (all that one instance alone feeds, directly or not), lines (regions without a branch), only
chains of stateless operators, nothing."""


def plan(flow: Flow, registry: Registry, fusion: Fusion = "full", *, fission: bool = True) -> Plan:
    """The physical graph of `flow`: pure, and the same for the same flow. Without `fission` there is one copy of each
    operator, whatever the document asks for."""
    groups = [g for g in _groups(flow, registry, fusion != "none", fission) if not _vanishes(g, registry)]
    location = {node.name: _name(g) for g in groups for node in g}
    for node in flow.nodes.values():  # in topological order: what feeds a vanished marker has its place already
        if node.name not in location:
            location[node.name] = location[node.inputs[0]]
    inputs = {_name(g): tuple(dict.fromkeys(location[i] for i in g[0].inputs)) for g in groups}
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
    made = Plan(flow, instances, location)
    if fusion in ("full", "lines"):
        # where a row that is to be tried again holds up its instance, it is not to hold up other branches
        made = _with_regions(made, registry, lines=fusion == "lines" or flow.on_error.action == "retry")
    for instance in made.instances.values():
        copies[instance.name] = copies[(instance.parts or (instance,))[0].name]
    return replace(made, instances=split(made.instances, copies))


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


def _with_regions(made: Plan, registry: Registry, *, lines: bool) -> Plan:
    """Instances that read nothing but what comes from one region, with it. With `lines` none has a branch."""
    region_of: dict[str, list[PhysicalInstance]] = {}
    for instance in made.instances.values():  # each after all that feed it
        feeders = [made.instances[name] for name in instance.inputs]
        regions = [region_of[feeder.name] for feeder in feeders]
        fits = bool(regions) and all(region is regions[0] for region in regions) and _beside(instance, feeders)
        # nobody else's operator, which may wait for something, is to hold up what does not need it either
        if fits and (_in_line(regions[0]) or not (lines or _foreign(instance, registry))):
            regions[0].append(instance)
            region_of[instance.name] = regions[0]
        else:
            region_of[instance.name] = [instance]
    name_of = {name: "+".join(part.name for part in region) for name, region in region_of.items()}
    instances: dict[str, PhysicalInstance] = {}
    for name, parts in region_of.items():
        if parts[0].name == name:
            instances[name_of[name]] = _region(parts, name_of)
    return replace(made, instances=instances)


def _beside(instance: PhysicalInstance, feeders: Sequence[PhysicalInstance]) -> bool:
    """Whether it takes its rows in the slot of those that feed it, copy by copy."""
    divisions = {output.division for feeder in feeders for output in feeder.outputs if output.instance == instance.name}
    slots = {instance.slot, *(feeder.slot for feeder in feeders)}
    return divisions == {FORWARD} and len(slots) == 1


def _in_line(region: Sequence[PhysicalInstance]) -> bool:
    return all(len(part.outputs) == 1 for part in region)


def _foreign(instance: PhysicalInstance, registry: Registry) -> bool:
    return not all(registry[node.type].ours for node in instance.nodes)


def _region(parts: Sequence[PhysicalInstance], name_of: Mapping[str, str]) -> PhysicalInstance:
    first = parts[0]
    inside = {part.name for part in parts}
    leaving = [
        (number, output)
        for number, part in enumerate(parts)
        for output in part.outputs
        if output.instance not in inside
    ]
    exits = tuple(dict.fromkeys((number, output.port) for number, output in leaving))
    return replace(
        first,
        name=name_of[first.name],
        nodes=tuple(node for part in parts for node in part.nodes),
        inputs=tuple(name_of[i] for i in first.inputs),
        outputs=tuple(
            output._replace(
                instance=name_of[output.instance],
                port=exits.index((number, output.port)) if len(parts) > 1 else output.port,
            )
            for number, output in leaving
        ),
        keys=next((part.keys for part in parts if part.keys), ()),
        live=parts[-1].live,
        parts=tuple(parts) if len(parts) > 1 else (),
        exits=exits if len(parts) > 1 else (),
    )


def _groups(flow: Flow, registry: Registry, chains: bool, fission: bool) -> list[list[Node]]:
    """Maximal linear chains of stateless operators of as many copies (with `chains`); every other one by itself."""
    groups: list[list[Node]] = []
    last: dict[str, list[Node]] = {}
    for node in flow.nodes.values():
        fits = chains and len(node.inputs) == 1 and registry[node.type].stateless
        group = last.get(node.inputs[0]) if fits else None
        if group is not None and len(flow.outputs(node.inputs[0])) == 1 and registry[group[-1].type].stateless:
            marker = _vanishes([node], registry) or _vanishes(group, registry)  # which runs wherever others do
            alike = (not fission or copies_of(group) == node.instances) and _slot(group) == node.slot
            if marker or alike:
                group.append(node)
                last[node.name] = group
                continue
        groups.append([node])
        last[node.name] = groups[-1]
    return groups


def _vanishes(group: list[Node], registry: Registry) -> bool:
    return all(registry[n.type].keys is not None for n in group)


def _slot(nodes: Sequence[Node]) -> int:
    """Operators of one instance ask for the same; markers in it cannot ask."""
    return max(node.slot for node in nodes)


def _name(group: list[Node]) -> str:
    return "+".join(n.name for n in group)


def _kind(spec: OperatorSpec) -> Kind:
    if spec.role != "inner":
        return spec.role
    return "stateless" if spec.stateless else "stateful"


def fields_needed(flow: Flow, registry: Registry, source: str) -> frozenset[str] | None:
    """The fields (beside `time` and `source`) that are used behind `source`, so that its decoder builds no others.

    None means all of them: for instance when rows reach a `publish` without a `select` before it.
    """
    needed = _fields_behind(flow, registry)[source]
    return None if needed is None else needed - ALWAYS


def _fields_behind(flow: Flow, registry: Registry) -> dict[str, frozenset[str] | None]:
    """Per operator: the fields of its output rows at which any operator behind it looks (None: all)."""
    behind: dict[str, frozenset[str] | None] = {}
    wanted: dict[str, list[frozenset[str] | None]] = {name: [] for name in flow.nodes}
    for node in reversed(tuple(flow.nodes.values())):
        after = behind[node.name] = _union(wanted[node.name])
        stateful = _kind(registry[node.type]) == "stateful"
        keys = keys_above(flow, registry, node.name) if stateful else ()  # the marker only names them: it is read here
        for name, use in registry[node.type].uses(node):
            wanted[name] += (_through(use, after), use.reads, frozenset(key for key, _ in keys))
    return behind


def _through(use: FieldUse, after: frozenset[str] | None) -> frozenset[str] | None:
    """Of the fields at which anything `after` an operator looks: those that come from before it."""
    if use.keeps is not None:
        return use.keeps if after is None else use.keeps & after
    return after if after is None or use.writes is None else after - use.writes


def _union(parts: list[frozenset[str] | None]) -> frozenset[str] | None:
    some = [p for p in parts if p is not None]
    return None if len(some) < len(parts) else frozenset().union(*some)
