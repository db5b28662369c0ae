"""The physical graph: what is fused, what vanishes, where batches go, and which fields the decoder must build."""

from __future__ import annotations

from typing import Any

import pytest

from edgert.core.errors import DocumentError
from edgert.flow.document import from_plain
from edgert.flow.graph import Flow
from edgert.flow.physical import Fusion, fields_needed, plan
from edgert.flow.plan import Location, Plan
from edgert.flow.spec import OperatorSpec
from edgert.operators.base.logic import Logic
from edgert.operators.registry import REGISTRY


class Foreign(Logic):
    """Of another package."""

    @classmethod
    def made(cls, build: Any) -> Foreign:
        return cls()


SOURCE = {"type": "mqtt_source", "topic": "city/{source}/sense"}


def flow(**operators: dict[str, Any]) -> Flow:
    return from_plain({"name": "f", "operators": {"in": SOURCE, **operators}}, REGISTRY)


def op(type: str, input: str, **parameters: Any) -> dict[str, Any]:  # noqa: A002
    return {"type": type, "input": input, **parameters}


def window(input: str, **aggregates: str) -> dict[str, Any]:  # noqa: A002
    return op("tumbling_window", input, size_s=60, aggregates=aggregates or {"n": "count()"})


def planned(fusion: Fusion = "chains", **operators: dict[str, Any]) -> Plan:
    return plan(flow(**operators), REGISTRY, fusion)


def wires(made: Plan) -> dict[str, list[tuple[object, ...]]]:
    return {i.name: [tuple(o[:3]) for o in i.outputs] for i in made.instances.values()}


def test_a_chain_of_stateless_operators_is_one_instance() -> None:
    made = planned(
        valid=op("filter", "in", where="t > 1"),
        derived=op("map", "valid", set={"f": "t * 2"}),
        key=op("key_by", "derived", keys=["source", "room"], key_types={"room": "long"}),
        minute=window("key", m="mean(f)"),
        central=op("ship", "minute"),
    )
    chain = "valid+derived+key"
    assert wires(made) == {
        "in": [(chain, 0, 0)],
        chain: [("minute", 0, 0)],
        "minute": [("central", REGISTRY["ship"].reads_port, 0)],
        "central": [],
    }
    assert [i.kind for i in made.instances.values()] == ["source", "stateless", "stateful", "sink"]
    assert made.instances[chain].operators == ("valid", "derived", "key")
    assert made.instances["minute"].keys == (("source", "string"), ("room", "long"))
    assert made.instances[chain].keys == ()
    assert made.instances[chain].live == frozenset({"source", "room", "f"})
    assert made.instance_of["derived"] == chain


LINE = {
    "valid": op("filter", "in", where="t > 1"),
    "key": op("key_by", "valid", keys=["source"]),
    "minute": window("key", m="mean(t)"),
    "central": op("ship", "minute"),
}


def test_what_stands_in_a_line_is_one_instance() -> None:
    line = flow(**LINE)
    made = plan(line, REGISTRY)
    name = "in+valid+key+minute+central"
    assert wires(made) == {name: []}
    fused = made.instances[name]
    assert (fused.kind, fused.inputs, fused.keys) == ("source", (), (("source", "string"),))
    apart = plan(line, REGISTRY, "chains")
    assert [part.name for part in fused.stages] == ["in", "valid+key", "minute", "central"]
    assert fused.stages == tuple(apart.instances.values())
    assert set(made.instance_of.values()) == {part.name for part in fused.stages}
    edges = [("in", "valid+key"), ("valid+key", "minute"), ("minute", "central")]
    assert list(made.edges()) == list(apart.edges()) == edges
    assert fused.parameters["topic"].filter == "city/+/sense"


def test_without_fusion_each_operator_is_an_instance_and_a_marker_none() -> None:
    assert list(planned("none", **LINE).instances) == ["in", "valid", "minute", "central"]


TWO_SOURCES: dict[str, Any] = {
    "other": SOURCE,
    "a": op("filter", "in", where="t > 1"),
    "b": op("filter", "in", where="t > 2"),
    "minute": window("b", m="mean(t)"),
    "joined": {"type": "join_latest", "inputs": ["a", "other"], "fields": ["h"]},
    "d": op("map", "joined", set={"f": "t"}),
    "out": op("publish", "d", topic="x"),
    "out2": op("publish", "minute", topic="y"),
    "central": op("ship", "minute"),
}


def test_a_region_ends_where_rows_of_another_come_in() -> None:
    made = planned("full", **TWO_SOURCES)
    head, joined = "in+a+b+minute+out2+central", "joined+d+out"
    assert wires(made) == {head: [(joined, 0, 0)], "other": [(joined, 0, 1)], joined: []}
    region = made.instances[head]
    assert region.exits == ((1, 0),), "what a gives"
    assert [part.name for part in region.stages] == ["in", "a", "b", "minute", "out2", "central"]
    assert made.instances[joined].inputs == (head, "other")
    assert sorted(made.edges()) == sorted(planned("chains", **TWO_SOURCES).edges())


def test_by_two_ways_out_of_a_region_rows_leave_by_two_ports() -> None:
    made = planned(
        "full",
        a=op("filter", "in", where="t > 1"),
        minute=window("in", m="mean(t)"),
        far={"type": "join_latest", "inputs": ["a", "minute"], "fields": ["m"], "slot": 1},
        central=op("ship", "minute", slot=1),
        out=op("publish", "far", topic="x", slot=1),
    )
    head = "in+a+minute"
    assert made.instances[head].exits == ((1, 0), (2, 0), (2, 1))
    leaving = [("far+out", 0, 0), ("far+out", 1, 1), ("central", 2, 0)]
    assert wires(made) == {head: leaving, "far+out": [], "central": []}


def test_lines_are_regions_without_a_branch() -> None:
    made = planned("lines", **TWO_SOURCES)
    assert wires(made) == {
        "in": [("a", 0, 0), ("b+minute", 0, 0)],
        "other": [("joined+d+out", 0, 1)],
        "a": [("joined+d+out", 0, 0)],
        "b+minute": [("out2", 0, 0), ("central", 1, 0)],
        "joined+d+out": [],
        "out2": [],
        "central": [],
    }
    assert made.instances["joined+d+out"].inputs == ("a", "other")


def test_where_a_row_may_be_tried_again_no_branch_is_held_up_by_another() -> None:
    operators = {"in": SOURCE, "a": op("publish", "in", topic="a"), "b": op("publish", "in", topic="b")}
    document = {"name": "f", "on_error": {"action": "retry"}, "operators": operators}
    assert list(plan(from_plain(document, REGISTRY), REGISTRY).instances) == ["in", "a", "b"]


@pytest.mark.parametrize(("feeder", "instances"), [("in", ["in", "a", "b"]), ("a", ["in+a+b"])])
def test_an_operator_of_another_package_holds_up_only_what_needs_it(feeder: str, instances: list[str]) -> None:
    sink = OperatorSpec("foreign_sink", "", role="sink", logic=Foreign.made)
    registry = {**REGISTRY, "foreign": OperatorSpec("foreign", "", logic=Foreign.made), "foreign_sink": sink}
    operators = {"in": SOURCE, "a": op("foreign_sink", "in"), "b": op("foreign_sink", "in")}
    if feeder == "a":
        operators |= {"a": op("foreign", "in"), "b": op("foreign_sink", "a")}
    flow = from_plain({"name": "f", "operators": operators}, registry)
    assert list(plan(flow, registry).instances) == instances


def test_a_branch_ends_a_chain() -> None:
    made = planned(
        a=op("filter", "in", where="t > 1"),
        b=op("filter", "a", where="t > 2"),
        c=op("filter", "a", where="t > 3"),
        d=op("map", "c", set={"f": "t"}),
        out=op("publish", "b", topic="x"),
        out2=op("publish", "d", topic="y"),
    )
    assert wires(made) == {
        "in": [("a", 0, 0)],
        "a": [("b", 0, 0), ("c+d", 0, 0)],
        "b": [("out", 0, 0)],
        "c+d": [("out2", 0, 0)],
        "out": [],
        "out2": [],
    }


def test_markers_alone_cost_no_instance() -> None:
    made = planned(
        by_source=op("key_by", "in", keys=["source"]),
        by_room=op("key_by", "in", keys=["room"]),
        one=window("by_source"),
        two=window("by_room"),
        out=op("publish", "one", topic="x"),
        out2=op("publish", "two", topic="y"),
    )
    assert wires(made)["in"] == [("one", 0, 0), ("two", 0, 0)]
    assert made.instances["one"].keys == (("source", "string"),)
    assert made.instances["two"].keys == (("room", "string"),)
    assert made.instance_of["by_source"] == made.instance_of["by_room"] == "in"


def test_a_window_is_keyed_by_the_nearest_marker_and_not_through_another_window() -> None:
    made = planned(
        first=op("key_by", "in", keys=["a"]),
        second=op("key_by", "first", keys=["b"]),
        valid=op("filter", "second", where="t > 1"),
        one=window("valid"),
        two=window("one"),
        out=op("publish", "two", topic="x"),
    )
    assert made.instances["one"].keys == (("b", "string"),)
    assert made.instances["two"].keys == ()


def test_a_plan_is_the_same_each_time() -> None:
    wanted = flow(a=op("filter", "in", where="t > 1"), out=op("publish", "a", topic="x"))
    assert plan(wanted, REGISTRY) == plan(wanted, REGISTRY)


@pytest.mark.parametrize(
    ("operators", "needed"),
    [
        ({"w": window("in", m="mean(t)", n="count()"), "out": op("ship", "w")}, {"t"}),
        ({"out": op("publish", "in", topic="x/{room}")}, None),
        (
            {
                "v": op("filter", "in", where="h > 1 and source == 'a'"),
                "m": op("map", "v", set={"f": "t * g", "h": "1"}),
                "k": op("key_by", "m", keys=["source", "room"]),
                "w": window("k", m="mean(f)", x="max(h)"),
                "out": op("publish", "w", topic="x"),
            },
            {"h", "t", "g", "room"},
        ),
        (
            {"m": op("map", "in", set={"h": "t"}), "w": window("m", x="max(h)"), "out": op("ship", "w")},
            {"t"},  # h itself is replaced before anyone reads it
        ),
        (
            {"s": op("select", "in", fields=["t", "h"]), "out": op("publish", "s", topic="x")},
            {"t", "h"},
        ),
        (
            {"s": op("select", "in", fields=["t", "h"]), "w": window("s", x="max(h)"), "out": op("ship", "w")},
            {"h"},  # t is let through, but nobody looks
        ),
        (
            {"w": window("in", x="max(h)"), "out": op("ship", "w"), "out2": op("publish", "in", topic="x")},
            None,
        ),
        ({"w": window("in"), "out": op("ship", "w")}, set()),
    ],
)
def test_the_decoder_is_told_the_fields_that_the_flow_uses(operators: dict[str, Any], needed: set[str] | None) -> None:
    assert fields_needed(flow(**operators), REGISTRY, "in") == needed


def test_asking_for_a_source_that_is_none_is_an_error() -> None:
    with pytest.raises(KeyError):
        fields_needed(flow(out=op("publish", "in", topic="x")), REGISTRY, "nowhere")


@pytest.mark.parametrize(
    ("slots", "chains"),
    [
        ({"a": 0, "b": 0}, ["in", "a+by+b", "out"]),
        ({"a": 0, "b": 1}, ["in", "a+by", "b", "out"]),
        ({"a": 0}, ["in", "a+by", "b", "out"]),
        ({"b": 1}, ["in", "a+by", "b", "out"]),
    ],
)
def test_a_marker_in_the_midst_of_a_chain_parts_only_what_asks_for_different_slots(
    slots: dict[str, int], chains: list[str]
) -> None:
    operators = {
        "a": op("filter", "in", where="v > 0"),
        "by": op("key_by", "a", keys=["source"]),
        "b": op("map", "by", set={"w": "v"}),
        "out": op("publish", "b", topic="y"),
    }
    for name, slot in slots.items():
        operators[name]["slot"] = slot
    assert list(plan(flow(**operators), REGISTRY, "chains").instances) == chains


def test_an_operator_with_a_slot_of_its_own_is_fused_only_with_those_of_the_same() -> None:
    operators: dict[str, dict[str, Any]] = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "a": {"type": "filter", "input": "in", "where": "v > 0"},
        "b": {"type": "map", "input": "a", "set": {"w": "v"}, "slot": 1},
        "c": {"type": "filter", "input": "b", "where": "w > 0", "slot": 1},
        "by": {"type": "key_by", "input": "c", "keys": ["source"]},
        "w": {"type": "tumbling_window", "input": "by", "size_s": 10, "aggregates": {"n": "count()"}},
        "out": {"type": "ship", "input": "w"},
    }
    made = plan(from_plain({"name": "f", "operators": operators}, REGISTRY), REGISTRY)
    assert list(made.instances) == ["in+a", "b+c+by", "w+out"]
    asked = {name: {**operator, **({} if name == "by" else {"slot": 1})} for name, operator in operators.items()}
    made = plan(from_plain({"name": "f", "operators": asked}, REGISTRY), REGISTRY)
    assert list(made.instances) == ["in+a+b+c+by+w+out"], "a marker is where the others are"
    assert made.instances["in+a+b+c+by+w+out"].slot == 1
    by = {**operators, "by": {**operators["by"], "slot": 1}}
    with pytest.raises(DocumentError, match=r"operators\.by\.slot: expected none"):
        from_plain({"name": "f", "operators": by}, REGISTRY)
    with pytest.raises(DocumentError, match=r"operators\.a\.slot: expected"):
        from_plain({"name": "f", "operators": {**operators, "a": {**operators["a"], "slot": 64}}}, REGISTRY)


def test_a_chain_that_begins_with_a_marker_runs_where_its_operators_are_placed() -> None:
    document = {
        "name": "f",
        "operators": {
            "in": {"type": "mqtt_source", "topic": "a/{source}"},
            "by": {"type": "key_by", "input": "in", "keys": ["source"]},
            "more": {"type": "map", "input": "by", "set": {"x": "1"}},
            "out": {"type": "publish", "input": "more", "topic": "out/{source}"},
        },
    }
    before = {name: Location("g", 0) for name in ("in", "by", "more", "out")}
    made = plan(from_plain(document, REGISTRY), REGISTRY, assignment={**before, "more": Location("g", 1)})
    assert made.assignment()["more"] == Location("g", 1)
    assert {name: str(i.location) for name, i in made.instances.items()} == {
        "in": "g/0", "by+more": "g/1", "out": "g/0",
    }  # fmt: skip
