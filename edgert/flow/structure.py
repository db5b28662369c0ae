"""Faults of the graph: inputs that are not there, cycles, operators that lead nowhere, fields that cannot be there."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from edgert.core.errors import Problem, show
from edgert.flow.graph import Flow, Node
from edgert.flow.spec import Registry

ALWAYS = frozenset({"time", "source"})


def graph_problems(
    nodes: Mapping[str, Node], names: frozenset[str], registry: Registry
) -> tuple[list[Problem], frozenset[str]]:
    """The problems, and the operators that stand in a cycle or behind one.

    `names` are all names of the document, those whose type is not known included: they are faults already.
    """
    problems = [p for node in nodes.values() for p in _input_problems(node, nodes, names, registry)]
    cyclic = frozenset(nodes) - frozenset(in_order(nodes, cyclic=False))
    problems += _cycle_problems(nodes, cyclic)
    read = {name for node in nodes.values() for name in node.inputs}
    unknown = len(names) > len(nodes)  # an operator of unknown type may be what reads, or the source
    for node in nodes.values():
        if registry[node.type].role != "sink" and node.name not in read and not unknown:
            sinks = ", ".join(sorted(t for t, spec in registry.items() if spec.role == "sink"))
            expected = f"an operator that reads from it (in the end a sink: {sinks})"
            problems.append(Problem(f"operators.{node.name}", expected, "none"))
    if not unknown and not any(registry[n.type].role == "source" for n in nodes.values()):
        sources = ", ".join(sorted(t for t, spec in registry.items() if spec.role == "source"))
        problems.append(Problem("operators", f"at least one source ({sources})", "none"))
    return problems, cyclic


def _input_problems(node: Node, nodes: Mapping[str, Node], names: frozenset[str], registry: Registry) -> list[Problem]:
    problems = []
    many = registry[node.type].many_inputs
    for i, name in enumerate(node.inputs):
        path = f"operators.{node.name}.{f'inputs[{i}]' if many else 'input'}"
        if name not in names:
            near = get_close_matches(name, names, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            problems.append(Problem(path, f"the name of an operator of this flow{hint}", show(name)))
        elif name in nodes and registry[nodes[name].type].role == "sink":
            problems.append(Problem(path, "an operator that gives rows on", f"{show(name)}, which is a sink"))
    return problems


def _cycle_problems(nodes: Mapping[str, Node], cyclic: frozenset[str]) -> list[Problem]:
    """One problem per cycle, at its first operator."""
    problems, seen = [], set[str]()
    for start in sorted(cyclic):
        way: list[str] = []
        at: str | None = start
        while at is not None and at not in seen:
            seen.add(at)
            way.append(at)
            at = next((i for i in nodes[at].inputs if i in cyclic), None)
        if at in way:
            cycle = [*way[way.index(at) :], at]
            problems.append(Problem(f"operators.{at}.input", "no cycle", " <- ".join(cycle)))
    return problems


def in_order(nodes: Mapping[str, Node], *, cyclic: bool = True) -> dict[str, Node]:
    """Nodes after all their inputs, else in the given order; with `cyclic` those in cycles stand at the end."""
    waiting = {n.name: {i for i in n.inputs if i in nodes} for n in nodes.values()}
    readers: dict[str, list[str]] = {}
    for node in nodes.values():
        for name in dict.fromkeys(node.inputs):
            readers.setdefault(name, []).append(node.name)
    ready = [name for name, inputs in waiting.items() if not inputs]
    ordered: dict[str, Node] = {}
    for name in ready:  # grows while it is walked
        ordered[name] = nodes[name]
        for reader in readers.get(name, ()):
            waiting[reader].discard(name)
            if not waiting[reader]:
                ready.append(reader)
    if cyclic:
        ordered.update({name: node for name, node in nodes.items() if name not in ordered})
    return ordered


def field_problems(flow: Flow, registry: Registry) -> list[Problem]:
    """Operators that read a field which an operator before them (a select, a window) certainly does not let through."""
    problems: list[Problem] = []
    there: dict[str, frozenset[str] | None] = {}
    for node in flow.nodes.values():
        spec = registry[node.type]
        if not node.inputs:
            there[node.name] = None
            continue
        parts = [there[i] for i in node.inputs]
        arriving = None if None in parts else frozenset().union(*(p for p in parts if p is not None))
        use = spec.fields(node)
        if arriving is not None:
            reads = frozenset().union(*(of.reads or () for _, of in spec.uses(node)))
            for name in sorted(reads - arriving - ALWAYS):
                expected = f"fields that arrive here ({', '.join(sorted(arriving | ALWAYS))})"
                problems.append(Problem(f"operators.{node.name}", expected, show(name)))
        keys = frozenset(k for k, _ in keys_above(flow, registry, node.name)) if not spec.stateless else frozenset()
        kept = arriving if use.keeps is None else use.keeps if arriving is None else use.keeps & arriving
        there[node.name] = None if kept is None or use.writes is None else kept | use.writes | keys
    return problems


def keys_above(flow: Flow, registry: Registry, name: str) -> tuple[tuple[str, str], ...]:
    """(field, type) of the key that the nearest marker above `name` declares; none if a stateful operator is nearer, or
    if `name` is not kept apart by keys."""
    node = flow.nodes[name]
    if not registry[node.type].keyed:
        return ()
    while len(node.inputs) == 1:
        node = flow.nodes[node.inputs[0]]
        spec = registry[node.type]
        if spec.keys is not None:
            return spec.keys(node)
        if not spec.stateless:
            break
    return ()
