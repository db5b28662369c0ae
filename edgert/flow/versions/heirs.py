"""Which operators of a flow go on with their state in its next version.

An operator is the same in both versions if its type, parameters and number of copies are, and if all its inputs are the
same operators. So everything before it is unchanged, too. Its name may be another one.

    before    readings ─ valid ─ minute ─ central          valid.where changed:
    after     readings ─ valid ─ minute ─ central          only readings is the same, minute begins empty
                   └───── names ─ hall                     nothing before minute changed: minute keeps its state
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgert.flow.graph import Flow, Node
from edgert.flow.spec import Registry


@dataclass(frozen=True, slots=True)
class Succession:
    """The fate of the operators of a flow that a next version replaces."""

    heirs: Mapping[str, str]
    """Operator → the same operator of the next version. An operator whose input has no heir has none."""
    kept: tuple[str, ...]
    """Operators of the next version that keep state, and go on with it."""
    lost: Mapping[str, str]
    """Operator whose state is lost → the reason."""
    empty: frozenset[str]
    """Operators of the next version that keep state, and begin without it."""


def succession(old: Flow, new: Flow, registry: Registry) -> Succession:
    """Compares two versions of a flow."""
    origin = _origins(old, new, registry)
    heirs = {before: after for after, before in origin.items()}
    stateful = [name for name, node in new.nodes.items() if keeps_state(node, registry)]
    lost = {
        name: _reason(node, old, new, heirs, registry)
        for name, node in old.nodes.items()
        if keeps_state(node, registry) and name not in heirs
    }
    kept = tuple(name for name in stateful if name in origin)
    return Succession(heirs, kept, lost, frozenset(stateful).difference(kept))


def keeps_state(node: Node, registry: Registry) -> bool:
    """True for an operator whose results depend on rows before. (A source keeps watermarks only.)"""
    spec = registry[node.type]
    return spec.role == "inner" and not spec.stateless and spec.keys is None


def _origins(old: Flow, new: Flow, registry: Registry) -> dict[str, str]:
    """Operator of `new` → the same one of `old`. Of several alike the one of the same name, then the first."""
    origin: dict[str, str] = {}
    free = dict(old.nodes)
    for node in new.nodes.values():  # in topological order: its inputs have their origins
        inputs = tuple(origin.get(name, "") for name in node.inputs)
        alike = [
            before.name
            for before in free.values()
            if before.inputs == inputs and _is_same(before, node, old, new, registry)
        ]
        if alike:
            others = [name for name in alike if name not in new.nodes]
            found = node.name if node.name in alike else next(iter(others), "")
            if found:
                origin[node.name] = found
                del free[found]
    return origin


def _is_same(before: Node, after: Node, old: Flow, new: Flow, registry: Registry) -> bool:
    """True if both have the same type, parameters and number of copies. A parameter that is left out is its default."""
    if (before.type, before.instances) != (after.type, after.instances):
        return False
    one, other = _table(old, before.name), _table(new, after.name)
    return all(
        one.get(p.name, p.default) == other.get(p.name, p.default)
        or before.parameters.get(p.name) == after.parameters.get(p.name)
        for p in registry[before.type].parameters
    )


def _table(flow: Flow, name: str) -> Mapping[str, Any]:
    table: Mapping[str, Any] = flow.document["operators"][name]
    return table


def _reason(node: Node, old: Flow, new: Flow, heirs: Mapping[str, str], registry: Registry) -> str:
    after = new.nodes.get(node.name)
    if after is None:
        return "it is not in the new version"
    if not _is_same(node, after, old, new, registry):
        return "it is changed"
    if changed := _changed_before(node, old, new, heirs, registry):
        return f"{changed}, before it, is changed"
    return "it has other inputs"


def _changed_before(node: Node, old: Flow, new: Flow, heirs: Mapping[str, str], registry: Registry) -> str:
    """The first operator before `node` that is changed; empty where only connections are."""
    before: set[str] = set()
    waiting = list(node.inputs)
    while waiting:
        name = waiting.pop()
        if name not in before:
            before.add(name)
            waiting += old.nodes[name].inputs
    for name, one in old.nodes.items():
        after = new.nodes.get(name)
        if name in before and name not in heirs and (after is None or not _is_same(one, after, old, new, registry)):
            return name
    return ""


def behind(flow: Flow, source: str) -> set[str]:
    """The operators to which rows of `source` come."""
    found = {source}
    for node in flow.nodes.values():  # in topological order
        if found.intersection(node.inputs):
            found.add(node.name)
    return found - {source}
