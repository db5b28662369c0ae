"""How rows are divided among copies: which edge is what, what is fused all the same, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from edgert.core.errors import DocumentError
from edgert.core.toml import to_toml
from edgert.flow.document import from_plain
from edgert.flow.document import load as load_document
from edgert.flow.physical import Fusion, plan
from edgert.flow.plan import Plan
from edgert.operators.builder import agg, stream
from edgert.operators.registry import REGISTRY

SOURCE = {"type": "mqtt_source", "topic": "city/{source}/sense"}


def op(type: str, input: str, instances: int = 1, **parameters: Any) -> dict[str, Any]:  # noqa: A002
    return {"type": type, "input": input, "instances": instances, **parameters}


def window(input: str, instances: int = 1) -> dict[str, Any]:  # noqa: A002
    return op("tumbling_window", input, instances, size_s=60, aggregates={"n": "count()"})


def planned(fusion: Fusion = "chains", source: int = 1, *, fission: bool = True, **operators: dict[str, Any]) -> Plan:
    document = {"name": "f", "operators": {"in": {**SOURCE, "instances": source}, **operators}}
    return plan(from_plain(document, REGISTRY), REGISTRY, fusion, fission=fission)


def edges(made: Plan) -> dict[str, str]:
    """ "from → to" of the first copies: how rows are divided."""
    first = {copies[0].name: copies[0] for copies in made.sets()}
    return {
        f"{copy.name} → {output.instance}": str(output.division)
        for copy in first.values()
        for output in copy.outputs
        if output.instance in first
    }


def test_every_copy_feeds_every_copy_that_it_may_have_rows_for() -> None:
    made = planned(
        source=2,
        by=op("key_by", "in", keys=["room"]),
        w=window("by", 3),
        out=op("ship", "w", 3),
    )
    assert list(made.instances) == ["in#1", "in#2", "w#1", "w#2", "w#3", "out#1", "out#2", "out#3"]
    assert [(*o[:3], o.producer) for o in made.instances["in#2"].outputs] == [
        ("w#1", 0, 0, 1), ("w#2", 0, 0, 1), ("w#3", 0, 0, 1)]  # fmt: skip
    assert [(*o[:3], o.producer) for o in made.instances["w#3"].outputs] == [("out#3", 1, 0, 0)]
    assert edges(made) == {"in#1 → w#1": "key (room)", "w#1 → out#1": "forward"}
    assert made.instances["w#1"].feeders == (2,)
    assert made.instances["out#1"].feeders == (1,)
    assert {(i.copy, i.copies) for i in made.instances.values()} == {(1, 2), (2, 2), (1, 3), (2, 3), (3, 3)}
    assert made.instance_of["by"] == "in"
    assert [len(copies) for copies in made.sets()] == [2, 3, 3]


def test_lines_of_copies_stand_side_by_side() -> None:
    made = planned(
        "full",
        source=2,
        ok=op("filter", "in", 2, where="t > 1"),
        by=op("key_by", "ok", keys=["room"]),
        w=window("by", 2),
        out=op("ship", "w", 2),
    )
    assert list(made.instances) == ["in+ok+by#1", "in+ok+by#2", "w+out#1", "w+out#2"]
    second = made.instances["w+out#2"]
    assert [part.name for part in second.stages] == ["w#2", "out#2"]
    assert second.stages[0].outputs[0].instance == "out#2"
    assert [o.instance for o in made.instances["in+ok+by#2"].outputs] == ["w+out#1", "w+out#2"]
    assert made.instance_of["w"] == "w"


def test_where_the_topic_names_the_device_windows_by_device_stand_in_line_with_the_source() -> None:
    made = planned(
        "full",
        source=2,
        ok=op("filter", "in", 2, where="t > 1"),
        by=op("key_by", "ok", keys=["source"]),
        w=window("by", 2),
        out=op("ship", "w", 2),
    )
    assert list(made.instances) == ["in+ok+by+w+out#1", "in+ok+by+w+out#2"]
    assert all(not instance.outputs for instance in made.instances.values())


def test_without_fission_a_flow_is_as_if_nothing_were_said_of_instances() -> None:
    operators = {"ok": op("filter", "in", 2, where="t > 1"), "by": op("key_by", "ok", keys=["room"])}
    operators |= {"w": window("by", 4), "out": op("ship", "w", 3)}
    whole = planned("full", source=2, fission=False, **operators)
    assert list(whole.instances) == ["in+ok+by+w+out"]
    assert whole.instances["in+ok+by+w+out"].copies == 1


def test_a_chain_is_of_operators_of_as_many_copies_and_a_marker_follows_any() -> None:
    made = planned(
        a=op("filter", "in", 2, where="t > 1"),
        by=op("key_by", "a", keys=["room"]),
        b=op("filter", "by", 2, where="t > 2"),
        c=op("map", "b", 3, set={"u": "t"}),
        w=window("c", 3),
        out=op("ship", "w"),
    )
    assert [copies[0].name for copies in made.sets()] == ["in", "a+by+b#1", "c#1", "w#1", "out"]
    assert edges(made) == {
        "in → a+by+b#1": "shuffle",
        "a+by+b#1 → c#1": "shuffle",
        "c#1 → w#1": "key (room)",
        "w#1 → out": "gather",
    }


@pytest.mark.parametrize(
    ("how", "operators"),
    [
        ("shuffle", {"by": op("key_by", "x", keys=["room"]), "w": window("by"), "out": op("ship", "w")}),
        ("key (source)", {"out": op("publish", "x", topic="out/{source}")}),
        ("key (room)", {"out": op("publish", "x", topic="out/{room}")}),
        ("key (source)", {"out": op("publish", "x", topic="alarms")}),  # no key: at least each device in order
        ("key (room)", {"by": op("key_by", "x", keys=["room"]), "k": op("kalman", "by", field="t"),
                        "out": op("publish", "k", topic="o")}),
        ("key (source)", {"by": op("key_by", "x", keys=["made"]), "k": op("kalman", "by", field="t"),
                          "out": op("publish", "k", topic="o")}),
        ("key (room)", {"by": op("key_by", "x", keys=["room", "made"]), "k": op("kalman", "by", field="t"),
                        "out": op("publish", "k", topic="o"), "out2": op("publish", "x", topic="{room}/{source}")}),
        ("key (source)", {"by": op("key_by", "x", keys=["room"]), "k": op("kalman", "by", field="t"),
                          "out": op("publish", "k", topic="o"), "out2": op("publish", "x", topic="{source}")}),
        ("key (room)", {"by": op("key_by", "x", keys=["room"]), "w": window("by"), "out": op("ship", "w"),
                        "c": op("count_window", "by", size=2, aggregates={"n": "count()"}),
                        "out2": op("publish", "c", topic="o")}),
    ],
)  # fmt: skip
def test_before_stateless_operators_rows_are_divided_by_what_keeps_the_order_behind(
    how: str, operators: dict[str, Any]
) -> None:
    made = planned("none", x=op("map", "in", 2, set={"made": "t * 2"}), **operators)
    assert edges(made)["in → x#1"] == how


@pytest.mark.parametrize(
    ("how", "between"),
    [
        ("forward", op("filter", "first", 2, where="t > 1")),
        ("forward", op("map", "first", 2, set={"u": "t"})),
        ("key (room)", op("map", "first", 2, set={"room": "t"})),
        ("key (room)", op("filter", "first", 3, where="t > 1")),
        ("forward", op("select", "first", 2, fields=["room", "estimate"])),
    ],
)
def test_rows_that_are_divided_by_the_key_already_stay_where_they_are(how: str, between: dict[str, Any]) -> None:
    made = planned(
        "none",
        by=op("key_by", "in", keys=["room"]),
        first=op("kalman", "by", 2, field="t"),
        between=between,
        again=op("key_by", "between", keys=["room"]),
        second=op("kalman", "again", 2, field="estimate", output="twice"),
        out=op("publish", "second", 2, topic="o/{room}"),
    )
    told = edges(made)
    assert told["between#1 → second#1"] == how
    assert told["second#1 → out#1"] == "forward"


def test_the_key_of_a_column_and_the_key_as_it_is_are_two() -> None:
    """A window takes `1` and `"1"` for one room, a filter of noise does not."""
    made = planned(
        by=op("key_by", "in", keys=["room"]),
        k=op("kalman", "by", 2, field="t"),
        again=op("key_by", "k", keys=["room"]),
        w=window("again", 2),
        out=op("ship", "w"),
    )
    assert edges(made)["k#1 → w#1"] == "key (room)"
    by_device = planned(
        by=op("key_by", "in", keys=["source"]),
        k=op("kalman", "by", 2, field="t"),
        again=op("key_by", "k", keys=["source"]),
        w=window("again", 2),
        out=op("ship", "w"),
    )
    assert edges(by_device)["k#1 → w#1"] == "forward", "a device is a string in any case"


def test_a_join_is_divided_by_what_must_be_equal_at_both_its_inputs() -> None:
    made = planned(
        source=2,
        other={**SOURCE, "instances": 3},
        j={"type": "join_latest", "inputs": ["in", "other"], "on": ["room"], "fields": ["t"], "instances": 2},
        out=op("publish", "j", topic="o"),
    )
    assert edges(made) == {"in#1 → j#1": "key (room)", "other#1 → j#1": "key (room)", "j#1 → out": "gather"}
    assert made.instances["j#2"].feeders == (2, 3)
    assert {o.input for o in made.instances["other#3"].outputs} == {1}


def test_a_list_of_known_keys_is_in_every_copy_so_any_row_may_go_to_any() -> None:
    known = op("bloom_filter", "in", 2, values=["a"])
    freely = planned(known=known, by=op("key_by", "known", keys=["room"]), w=window("by"), out=op("ship", "w"))
    assert edges(freely) == {"in → known#1": "shuffle", "known#1 → w": "gather", "w → out": "forward"}
    in_order = planned(known=known, out=op("publish", "known", topic="o/{room}"))
    assert edges(in_order)["in → known#1"] == "key (room)"
    in_line = planned(source=2, known=known, by=op("key_by", "known", keys=["source"]), w=window("by", 2),
                      out=op("ship", "w"))  # fmt: skip
    assert [edges(in_line)[edge] for edge in ("in#1 → known#1", "known#1 → w#1")] == ["forward", "forward"]


def test_observations_are_divided_by_what_must_be_equal() -> None:
    made = planned(
        j={"type": "join_observations", "inputs": ["in"], "on": ["room"], "fields": ["t", "h"], "instances": 2},
        out=op("publish", "j", topic="o"),
    )
    assert edges(made) == {"in → j#1": "key (room)", "j#1 → out": "gather"}


def errors(**operators: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(DocumentError) as caught:
        from_plain({"name": "f", "operators": {"in": SOURCE, **operators}}, REGISTRY)
    return {p.path: f"expected {p.expected}, got {p.got}" for p in caught.value.problems}


def test_what_cannot_be_split_is_refused_with_the_reason() -> None:
    assert errors(w=window("in", 2), out=op("ship", "w")) == {
        "operators.w.instances": "expected 1, or a key_by before it (rows of one key meet in one instance), got 2"
    }
    assert errors(by=op("key_by", "in", 2, keys=["room"]), w=window("by"), out=op("ship", "w")) == {
        "operators.by.instances": "expected 1 (key_by is no instance by itself), got 2"
    }
    seen = op("bloom_filter", "in", 2, mode="first_seen")
    assert errors(seen=seen, out=op("publish", "seen", topic="o")) == {
        "operators.seen.instances": 'expected 1 with mode = "first_seen", got 2'
    }


@pytest.mark.parametrize("wrong", [0, 65, 1.5, "2", True])
def test_a_number_of_instances_is_one(wrong: Any) -> None:
    ((path, told),) = errors(ok=op("filter", "in", wrong, where="t > 1"), out=op("publish", "ok", topic="o")).items()
    assert path == "operators.ok.instances"
    assert told.startswith("expected an integer from 1 to 64, got ")


def test_the_instances_of_a_flow_are_bounded() -> None:
    """A status of thousands of instances took seconds and many megabytes."""
    operators = {f"o{n}": op("filter", "in", 64, where="t > 1") for n in range(16)}
    outs = {f"out{n}": op("publish", f"o{n}", topic="o") for n in range(16)}
    assert (
        errors(**operators, **outs)["operators"]
        == "expected at most 1000 instances of all operators together, got 1041"
    )


def test_toml_json_and_python_say_the_same() -> None:
    rooms = stream("rooms").mqtt_source("house/{room}/{source}", name="in").instances(2)
    kept = rooms.filter("t > 1", name="ok", instances=3).key_by("room", name="by")
    kept.tumbling_window(60.0, {"n": agg.count()}, name="w", instances=2).ship(name="out")
    flow = rooms.build()
    assert {name: node.instances for name, node in flow.nodes.items()} == {"in": 2, "ok": 3, "by": 1, "w": 2, "out": 1}
    again = load_document(to_toml(flow.document), REGISTRY)
    assert again.document == flow.document
    assert list(plan(again, REGISTRY).instances) == list(plan(flow, REGISTRY).instances)
