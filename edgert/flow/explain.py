"""Text for `edgert explain`: the graph of a flow as deployed, and the instances that will run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgert.flow.graph import Flow
from edgert.flow.physical import fields_needed
from edgert.flow.plan import FORWARD, Output, PhysicalInstance, Plan, uncopied
from edgert.flow.spec import Registry

_WIDE = 100
"""Parameters are cut to so many characters: the document has them whole."""


def logical(flow: Flow) -> str:
    """The operators, each with what the document says about it and whom it feeds."""
    stated: Mapping[str, Mapping[str, Any]] = flow.document["operators"]
    return _table(
        (
            node.name,
            node.type,
            _arrow(n.name for n in flow.outputs(node.name)),
            _cut(", ".join(_stated(key, value) for key, value in stated[node.name].items() if key not in _SHOWN)),
        )
        for node in flow.nodes.values()
    )


_SHOWN = ("type", "input", "inputs")
"""Parameters that the other columns show."""


def physical(plan: Plan, registry: Registry) -> str:
    """The instances, in the order in which rows reach them, all copies of one in one line; the stages of a region are
    numbered 1.1, 1.2, ..."""
    sets = plan.sets()
    numbers: dict[str, str] = {}
    rows = []
    for n, copies in enumerate(sets, 1):
        numbers |= {copy.name: str(n) for copy in copies}
        for copy in copies:
            numbers |= {stage.name: f"{n}.{k}" for k, stage in enumerate(copy.stages, 1)}
        rows += [(stage, len(copies), copies[-1].copy) for stage in copies[0].stages or copies[:1]]
    return _table(
        (
            numbers[stage.name],
            stage.name if copies == 1 else f"{stage.name}..{last}",
            stage.kind,
            _arrow(dict.fromkeys(_target(numbers[o.instance], o, copies) for o in stage.outputs)),
            _cut("; ".join(_facts(stage, plan, registry))),
        )
        for stage, copies, last in rows
    )


def _facts(instance: PhysicalInstance, plan: Plan, registry: Registry) -> Iterable[str]:
    if instance.kind == "source":
        needed = fields_needed(plan.flow, registry, instance.nodes[0].name)
        yield "decodes all fields" if needed is None else f"decodes {', '.join(sorted(needed)) or 'no field'}"
    if instance.keys:
        yield f"keyed by {', '.join(f'{field} ({kind})' for field, kind in instance.keys)}"
    steps = [node.name for node in instance.nodes if registry[node.type].keys is None]
    if instance.kind == "stateless" and len(steps) > 1:
        yield f"{len(steps)} operators compiled to one function"
    if instance.slot >= 0:
        yield f"slot {instance.slot}"
    if instance.copies > 1:
        yield f"{instance.copies} copies{', divided by topic' if instance.kind == 'source' else ''}"
    if len(instance.inputs) > 1:
        yield f"{len(instance.inputs)} inputs"
    markers = [node.name for node in instance.nodes if registry[node.type].keys is not None]
    markers += [
        m for m, at in plan.instance_of.items() if at == uncopied(instance.name)[0] and m not in instance.operators
    ]
    if markers:
        yield f"{', '.join(markers)} cost{'' if len(markers) > 1 else 's'} nothing"


def _target(number: str, output: Output, copies: int) -> str:
    """How rows are divided is said where they go to, or come from, more than one copy."""
    port = f" (port {output.port})" if output.port else ""
    return f"{number}{port}" if output.division == FORWARD and copies == 1 else f"{number}{port} {output.division}"


def _arrow(targets: Iterable[str]) -> str:
    text = ", ".join(targets)
    return f"→ {text}" if text else ""


def _stated(key: str, value: Any) -> str:
    return f"{key} = {value!r}"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDE else f"{text[: _WIDE - 1]}…"


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    """Columns as wide as they must be; the last one is free."""
    lines = list(rows)
    widths = [max(map(len, column)) for column in list(zip(*lines, strict=True))[:-1]]
    return "\n".join(
        "  " + "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
        for line in lines
    )
