"""Names of keys and aggregates that can stand in one row, and be columns of one table."""

from __future__ import annotations

from collections.abc import Iterable

from edgert.core.errors import PayloadError, Problem
from edgert.core.results.result_schema import Schema, schema_untrusted
from edgert.flow.graph import Flow, Node
from edgert.operators.state.aggregate_calls import COLUMN, RESERVED, Aggregate


def key_names(node: Node, flow: Flow) -> frozenset[str]:
    """The fields of the key that the nearest marker above `node` declares."""
    while len(node.inputs) == 1 and node.inputs[0] in flow.nodes:
        node = flow.nodes[node.inputs[0]]
        if node.type == "key_by":
            return frozenset(node.parameters["keys"])
        if not node.stateless:
            break
    return frozenset()


def check_names(node: Node, flow: Flow) -> Iterable[Problem]:
    """Names of keys and aggregates that cannot stand in one row."""
    taken = key_names(node, flow)
    for aggregate in node.parameters.get("aggregates") or ():
        if isinstance(aggregate, Aggregate) and aggregate.name in taken:
            path = f"operators.{node.name}.aggregates.{aggregate.name}"
            yield Problem(path, "a name that is not also a key", repr(aggregate.name))
    for key in taken:
        if key in RESERVED - {"source"} or not COLUMN.fullmatch(key):
            expected = "keys that can be columns of a table (letters, digits, _; not a reserved name)"
            yield Problem(f"operators.{node.name}", expected, repr(key))


def check_table(node: Node, flow: Flow) -> Iterable[Problem]:
    """Problems for which the central side would refuse results: names that differ only in case, or that meet a partial
    column's name."""
    aggregates = [a for a in node.parameters.get("aggregates") or () if isinstance(a, Aggregate)]
    own, keys = {a.name for a in aggregates}, key_names(node, flow)
    schema = Schema(1.0, tuple((k, "string") for k in sorted(keys)), tuple((a.name, a.function) for a in aggregates))
    try:
        schema_untrusted(schema.plain())
    except PayloadError as error:
        if not own & set(keys) and not any(k in RESERVED - {"source"} or not COLUMN.fullmatch(k) for k in keys):
            expected = "names of keys and aggregates that are different columns, whatever their case"
            yield Problem(f"operators.{node.name}.aggregates", expected, str(error))
