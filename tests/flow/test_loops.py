"""Flows that read what they publish, alone or by way of others."""

from __future__ import annotations

from typing import Any

import pytest

from edgert.core.errors import DocumentError
from edgert.flow.document import from_plain
from edgert.flow.graph import Flow
from edgert.flow.loops import loops
from edgert.operators.registry import REGISTRY


def document(name: str, reads: str, publishes: str, where: str = "") -> dict[str, Any]:
    operators: dict[str, Any] = {"in": {"type": "mqtt_source", "topic": reads}}
    if where:
        operators["some"] = {"type": "filter", "input": "in", "where": where}
    operators["out"] = {"type": "publish", "input": "some" if where else "in", "topic": publishes}
    return {"name": name, "operators": operators}


def flow(name: str, reads: str, publishes: str, where: str = "") -> Flow:
    return from_plain(document(name, reads, publishes, where), REGISTRY)


@pytest.mark.parametrize(
    ("reads", "publishes"),
    [("home/#", "home/out/{source}"), ("{source}/t", "{source}/t"), ("+/t", "x/t"), ("#", "anything/{a}"), ("a", "a")],
)
def test_a_flow_that_takes_all_that_it_publishes_is_refused(reads: str, publishes: str) -> None:
    with pytest.raises(DocumentError) as caught:
        from_plain(document("f", reads, publishes), REGISTRY)
    [problem] = caught.value.problems
    assert problem.path == "operators.out.topic"
    assert problem.got == f"f.out -> {publishes} -> f.in"


@pytest.mark.parametrize(
    ("reads", "publishes", "where"),
    [("home/#", "home/alarm", "t > 30"), ("home/a/x", "home/{room}/x", ""), ("v", "{a}", "")],
)
def test_where_field_values_decide_the_loop_is_only_possible(reads: str, publishes: str, where: str) -> None:
    [loop] = loops([flow("f", reads, publishes, where)], "f")
    assert not loop.certain


def test_a_table_that_drops_rows_which_it_does_not_know_makes_the_loop_only_possible() -> None:
    plain = document("f", "home/{source}/t", "home/{room}/t")
    rooms = {"type": "annotate", "input": "in", "field": "source", "table": {"s1": {"room": "hall"}}, "missing": "drop"}
    plain["operators"] |= {"rooms": rooms, "out": plain["operators"]["out"] | {"input": "rooms"}}
    [loop] = loops([from_plain(plain, REGISTRY)], "f")
    assert not loop.certain
    rooms["missing"] = "null"
    with pytest.raises(DocumentError):
        from_plain(plain, REGISTRY)


@pytest.mark.parametrize(
    ("reads", "publishes"),
    [("home/+", "home/a/b"), ("home/{source}", "out/{source}"), ("+/x", "$SYS/x"), ("a/b/c", "a/b"), ("a/b", "a/bc")],
)
def test_other_topics_make_no_loop(reads: str, publishes: str) -> None:
    assert loops([flow("f", reads, publishes)], "f") == []


def test_a_loop_by_way_of_other_flows_is_found_from_the_flow_that_closes_it() -> None:
    a, b, c = flow("a", "1/+", "2/x"), flow("b", "2/+", "3/x"), flow("c", "3/+", "1/x")
    assert loops([a, b], "a") == []
    [loop] = loops([c, a, b], "c")
    assert loop.certain
    assert str(loop) == "c.out -> 1/x -> a.out -> 2/x -> b.out -> 3/x -> c.in"
    perhaps = flow("b", "2/+", "3/x", "v > 1")
    [loop] = loops([c, a, perhaps], "c")
    assert not loop.certain


def test_a_flow_in_front_of_a_loop_of_others_closes_none() -> None:
    a, b = flow("a", "1/+", "2/x"), flow("b", "2/+", "1/x")
    assert loops([flow("front", "0/+", "1/x"), a, b], "front") == []
