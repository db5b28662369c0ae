"""`annotate`: fields from a table in the document, alone, in a chain, and in a fused line."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import Batch
from edgert.core.errors import DocumentError
from edgert.flow.document import from_plain
from edgert.flow.physical import fields_needed
from edgert.operators.base.logic import Now
from edgert.operators.fusion.chain import Chain
from edgert.operators.registry import REGISTRY

NOW = Now(0.0, 0.0)
TABLE: dict[str, Any] = {"a": {"room": "hall", "floor": 2}, "b": {"room": "attic", "roof": True}}


def document(*operators: dict[str, Any], keep: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {"in": {"type": "mqtt_source", "topic": "x/{source}"}}
    for number, operator in enumerate(operators):
        made[f"n{number}"] = {"input": [*made][-1], **operator}
    if keep:
        made["brief"] = {"type": "select", "input": [*made][-1], "fields": keep.split()}
    made["out"] = {"type": "publish", "input": [*made][-1], "topic": "y"}
    return {"name": "f", "operators": made}


def annotate(table: Any = TABLE, **parameters: Any) -> dict[str, Any]:
    return {"type": "annotate", "table": table, **parameters}


def chain(*operators: dict[str, Any], keep: str = "") -> Chain:
    flow = from_plain(document(*operators, keep=keep), REGISTRY)
    return Chain([node for node in flow.nodes.values() if node.name not in ("in", "out")])


def given_on(made: Chain, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for emission in made.process(Batch(list(rows), 0.0), 0, NOW) for row in emission.batch.rows]


def row(source: str, **more: Any) -> dict[str, Any]:
    return {"time": 0.0, "source": source, **more}


def test_a_row_gets_the_fields_of_its_key_and_keeps_its_own() -> None:
    made = chain(annotate())
    first = row("a", v=1, room="old")
    assert given_on(made, first, row("b"), row("c", floor=7)) == [
        row("a", v=1, room="hall", floor=2, roof=None),
        row("b", room="attic", floor=None, roof=True),
        row("c", room=None, floor=None, roof=None),
    ]
    assert first == row("a", v=1, room="old"), "rows are shared"
    assert not made.drops


def test_rows_that_the_table_does_not_know_can_be_dropped_and_are_counted() -> None:
    made = chain(annotate(field="k", missing="drop"), {"type": "filter", "where": "room == 'hall'"})
    rows = [row("s", k=k) for k in ("a", "b", "c", 1, True, None)]
    assert [r["k"] for r in given_on(made, *rows, row("s"))] == ["a"]
    assert made.drops == {"not in the table of n0": 5}, "what the filter lets go is not lost"


def test_what_one_step_adds_the_next_can_look_up() -> None:
    rooms = {"hall": {"area": 30.5}, "attic": {"area": 12}}
    made = chain(annotate(), annotate(rooms, field="room"), {"type": "map", "set": {"half": "area / 2"}}, keep="half")
    assert given_on(made, row("a"), row("b"), row("c")) == [row("a", half=15.25), row("b", half=6), row("c", half=None)]


def test_a_row_that_fails_elsewhere_does_not_count_the_others_twice() -> None:
    made = chain(annotate(missing="drop"), {"type": "map", "set": {"q": "1 / v"}}, annotate({"x": {"y": 1}}, field="k"))
    rows = [row("c", v=1), row("a", v=0), row("b", v=2), row("a", v=1, k=["x"])]
    assert [r["q"] for r in given_on(made, *rows)] == [0.5]
    assert made.drops == {"not in the table of n0": 1, "division by zero in n1": 1, "wrong type in n2": 1}


def test_only_what_somebody_reads_is_built() -> None:
    flow = from_plain(document(annotate(field="k"), keep="room v"), REGISTRY)
    assert fields_needed(flow, REGISTRY, "in") == frozenset({"k", "v"})
    nodes = [flow.nodes["n0"]]
    made = Chain(nodes, frozenset({"room"}))
    assert given_on(made, row("s", k="a")) == [row("s", k="a", room="hall")]


TABLES = st.dictionaries(
    st.text(max_size=3), st.dictionaries(st.text("abc", min_size=1), st.integers(0, 9), min_size=1)
)


@given(TABLES.filter(bool), st.lists(st.text(max_size=3), max_size=20), st.booleans())
def test_it_is_a_look_into_a_dictionary(table: dict[str, dict[str, int]], keys: list[str], drop: bool) -> None:
    made = chain(annotate(table, missing="drop" if drop else "null"))
    nothing = {field: None for fields in table.values() for field in fields}
    rows = [row(key) for key in [*keys, *table]]
    expected = [r | nothing | table.get(r["source"], {}) for r in rows if not drop or r["source"] in table]
    assert given_on(made, *rows) == expected
    assert sum(made.drops.values()) == len(rows) - len(expected)


@pytest.mark.parametrize(
    ("table", "paths"),
    [
        ({}, ["table"]),
        ({"a": 1, "b": {}}, ["table.a", "table.b"]),
        ({"a": {"time": 1, "b": None, "c": [1]}}, ["table.a.time", "table.a.b", "table.a.c"]),
        ({"a": {"x": float("inf"), "y": float("nan"), "": 1}}, ["table.a.x", "table.a.y", "table.a."]),
        ("a", ["table"]),
    ],
)
def test_a_table_of_another_form_is_refused_with_every_place(table: Any, paths: list[str]) -> None:
    with pytest.raises(DocumentError) as refused:
        from_plain(document(annotate(table)), REGISTRY)
    assert [p.path for p in refused.value.problems] == [f"operators.n0.{path}" for path in paths]


def test_a_key_above_it_is_that_of_a_window_below() -> None:
    window = {"type": "tumbling_window", "size_s": 1, "aggregates": {"room": "count()"}}
    with pytest.raises(DocumentError, match="a name that is not also a key"):
        from_plain(document({"type": "key_by", "keys": ["room"]}, annotate(), window), REGISTRY)


def test_a_small_table_that_would_take_much_memory_is_refused_before_it_is_built() -> None:
    """A table of 100 kB in which each key had a field of its own took hundreds of megabytes."""
    wide = {f"k{n}": {f"f{n}": 1} for n in range(5_000)}
    tracemalloc.start()
    with pytest.raises(DocumentError, match=r"at most 256 fields in all.*got 5,000"):
        from_plain(document(annotate(wide)), REGISTRY)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 << 20
    long = {f"k{n}": {f"f{n % 250}": 1} for n in range(4_001)}
    with pytest.raises(DocumentError, match=r"at most 1,000,000 values.*got 1,000,250"):
        from_plain(document(annotate(long)), REGISTRY)
