"""filter, map, select, key_by: from a document to rows."""

from __future__ import annotations

from edgert.flow.document import from_plain
from edgert.flow.physical import plan
from edgert.operators.registry import REGISTRY
from edgert.operators.stateless import chain_of

DOCUMENT = {
    "name": "f",
    "operators": {
        "in": {"type": "mqtt_source", "topic": "city/{source}"},
        "valid": {"type": "filter", "input": "in", "where": "-12.5 <= t <= 43.1"},
        "derived": {"type": "map", "input": "valid", "set": {"f": "t * 9 / 5 + 32", "q": "100 / h"}},
        "narrow": {"type": "select", "input": "derived", "fields": ["f", "q", "room"]},
        "key": {"type": "key_by", "input": "narrow", "keys": ["room"]},
        "minute": {"type": "tumbling_window", "input": "key", "size_s": 60, "aggregates": {"m": "mean(f)"}},
        "out": {"type": "ship", "input": "minute"},
    },
}
ROWS = [
    {"time": 1.0, "source": "a", "t": 20.0, "h": 50, "room": "x"},
    {"time": 2.0, "source": "a", "t": 99.0, "h": 50, "room": "x"},
    {"time": 3.0, "source": "a", "t": 20.0, "h": 0, "room": "x"},
    {"time": 4.0, "source": "a", "t": "20", "h": 0, "room": "x"},
]


def test_fused_operators_work_as_the_document_says_and_bad_rows_name_their_operator() -> None:
    nodes = plan(from_plain(DOCUMENT, REGISTRY), REGISTRY, "chains").instances["valid+derived+narrow+key"].nodes
    chain, names = chain_of(nodes)
    rows, bad = chain.apply(ROWS)
    assert rows == [{"time": 1.0, "source": "a", "room": "x", "f": 68.0, "q": 2.0}]
    assert [(names[b.step], b.reason) for b in bad] == [("derived", "division by zero"), ("valid", "wrong type")]


def test_the_plan_tells_the_chain_which_fields_are_looked_at() -> None:
    instance = plan(from_plain(DOCUMENT, REGISTRY), REGISTRY, "chains").instances["valid+derived+narrow+key"]
    chain, _ = chain_of(instance.nodes, instance.live)
    assert chain.apply(ROWS)[0] == [{"time": 1.0, "source": "a", "room": "x", "f": 68.0}]
