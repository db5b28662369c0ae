"""How rows are divided among the copies of an operator (`instances = k`), and the copies themselves.

    in ── key (source) ──▶ minute#1 ─▶ central#1        forward   to the copy of the same number
        ╲                                               key       by a hash of the key, so that one of all keys' rows
         ╲───────────────▶ minute#2 ─▶ central#2                  meet in one copy
                                                        shuffle   batch by batch in turn
                                                        gather    all into the only instance

Forward is what the literature calls local: no row crosses from one line of copies to another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from edgert.flow.graph import Flow, Node
from edgert.flow.plan import FORWARD, Division, Output, PhysicalInstance, copy_name
from edgert.flow.spec import ANY, Keys, Registry
from edgert.flow.structure import ALWAYS, keys_above

BY_DEVICE: Final[Keys] = (("source", "string"),)


def copies_of(nodes: Sequence[Node]) -> int:
    """Returns how many instances a group becomes; a marker in it, which always says 1, follows the others."""
    return max(node.instances for node in nodes)


def division(
    flow: Flow, registry: Registry, consumer: Sequence[Node], copies: tuple[int, int], divided: Keys | None
) -> Division:
    """The division of rows on the edge to `consumer`, from `copies[0]` instances to `copies[1]`. `divided`: the fields
    by which the rows are divided among the instances that give them, None if unknown."""
    before, behind = copies
    if behind == 1:
        return FORWARD if before == 1 else Division("gather")
    if (keys := divided_among(flow, registry, consumer[0])) is not None:
        return FORWARD if before == behind and divided == keys else Division("key", keys)
    if before == behind:
        return FORWARD
    wanted = _order(flow, registry, consumer)
    return Division("key", wanted) if wanted else Division("shuffle")


def divided_behind(
    flow: Flow, registry: Registry, consumer: Sequence[Node], edges: Iterable[tuple[Division, Keys | None]]
) -> Keys | None:
    """The fields by which the output of `consumer` is divided among its instances; None if unknown. `edges`: for each
    incoming edge its division, and the fields by which rows were divided before it."""
    spec = registry[consumer[0].type]
    if spec.role == "source":
        return (spec.divides_by(consumer[0], ()) if spec.divides_by else ()) or None
    keys = divided_among(flow, registry, consumer[0])
    if keys is None:
        came = {divided if how == FORWARD else how.keys or None for how, divided in edges}
        keys = came.pop() if len(came) == 1 else None
    if keys is None or any(_loses(node, registry, keys) for node in consumer):
        return None
    return keys


def divided_among(flow: Flow, registry: Registry, node: Node) -> Keys | None:
    """The fields by which rows must be divided among copies of a stateful operator; None if its copies take any row."""
    spec = registry[node.type]
    if spec.role != "inner" or spec.stateless or spec.divides_by is None:
        return None
    keys = spec.divides_by(node, keys_above(flow, registry, node.name))
    return None if keys is None else _plain(keys)


def _loses(node: Node, registry: Registry, keys: Keys) -> bool:
    """True if `node` may change or remove one of the fields. The output of a window has the fields of its key."""
    spec = registry[node.type]
    use = spec.fields(node)
    fields = {name for name, _ in keys} - ALWAYS
    taken = spec.stateless and use.keeps is not None and not fields <= use.keeps
    return taken or use.writes is None or bool(fields & use.writes)


def _order(flow: Flow, registry: Registry, consumer: Sequence[Node]) -> Keys | None:
    """The fields by which rows must be divided before stateless operators, so that operators behind them, to which the
    order of rows matters, see it kept; None if there are none such.

    These are the fields common to the keys of all those operators, without fields made on the way. If there is none,
    the device: then the order of the rows of one device is kept.
    """
    wanted: list[frozenset[tuple[str, str]]] = []
    seen: set[tuple[str, frozenset[str]]] = set()
    first = consumer[0]
    waiting: list[tuple[Node, frozenset[str]]] = [(first, frozenset())]
    while waiting:
        node, written = waiting.pop()
        if (node.name, written) in seen:
            continue
        seen.add((node.name, written))
        spec = registry[node.type]
        keys = keys_above(flow, registry, node.name)
        asked = spec.divides_by(node, keys) if spec.divides_by else keys
        if spec.stateless or asked is None:
            use = spec.fields(node)
            behind = written | (use.writes or frozenset())
            waiting += [(other, behind) for other in flow.outputs(node.name)]
        elif spec.ordered:
            wanted.append(frozenset(pair for pair in _plain(asked) or BY_DEVICE if pair[0] not in written))
    if not wanted:
        return None
    return tuple(sorted(frozenset.intersection(*wanted))) or BY_DEVICE


def _plain(keys: Keys) -> Keys:
    """A device is a string anyway."""
    return tuple(BY_DEVICE[0] if pair == ("source", ANY) else pair for pair in keys)


def split(instances: Mapping[str, PhysicalInstance], copies: Mapping[str, int]) -> dict[str, PhysicalInstance]:
    """Every instance in as many copies as `copies` says by its name; a single one keeps its name."""
    made = {}
    for instance in instances.values():
        for number in range(1, copies[instance.name] + 1):
            copy = _copy(instance, number, copies)
            made[copy.name] = copy
    return made


def _copy(instance: PhysicalInstance, number: int, copies: Mapping[str, int]) -> PhysicalInstance:
    many = copies[instance.name]
    if many == 1:
        number = 0
    return replace(
        instance,
        name=copy_name(instance.name, number),
        outputs=tuple(one for output in instance.outputs for one in _to_copies(output, number, copies)),
        copy=number,
        copies=many,
        stages=tuple(_copy(stage, number, {**copies, stage.name: many}) for stage in instance.stages),
    )


def _to_copies(output: Output, number: int, copies: Mapping[str, int]) -> Iterable[Output]:
    if output.division == FORWARD:
        return (output._replace(instance=copy_name(output.instance, number)),)
    others = range(1, many + 1) if (many := copies[output.instance]) > 1 else (0,)
    producer = max(0, number - 1)
    return tuple(output._replace(instance=copy_name(output.instance, other), producer=producer) for other in others)
