"""Flows that read what they publish, alone or by way of others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.errors import DocumentError
from edgert.flow import loops as module
from edgert.flow.document import from_plain
from edgert.flow.graph import Flow
from edgert.flow.loops import Search, loops
from edgert.operators.registry import REGISTRY
from tests.topic_filters import matches


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
    [("home/+", "home/a/b"), ("home/{source}", "out/{source}"), ("+/x", "$aws/x"), ("a/b/c", "a/b"), ("a/b", "a/bc")],
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


def letters(name: str, *sources: tuple[str, str], publishes: str = "out/x", errors: str = "", **settings: str) -> Flow:
    """A flow of sources (filter, topic of dead letters)."""
    operators: dict[str, Any] = {
        f"in{at}": {"type": "mqtt_source", "topic": reads, "dead_letter": dead, **settings}
        for at, (reads, dead) in enumerate(sources)
    }
    operators["out"] = {"type": "publish", "input": "in0", "topic": publishes}
    operators |= {f"out{at}": {"type": "publish", "input": f"in{at}", "topic": "n"} for at in range(1, len(sources))}
    document: dict[str, Any] = {"name": name, "operators": operators}
    if errors:
        document["on_error"] = {"action": "dead-letter", "topic": errors}
    return from_plain(document, REGISTRY)


def test_dead_letters_that_come_back_are_refused_by_way_of_another_source_too() -> None:
    with pytest.raises(DocumentError) as caught:
        letters("f", ("a/+", "a/dead"))
    [problem] = caught.value.problems
    assert (problem.path, problem.got) == ("operators.in0.dead_letter", "f.in0 (dead_letter) -> a/dead -> f.in0")
    with pytest.raises(DocumentError) as caught:
        letters("f", ("a/+", "b/dead"), ("b/+", "a/dead"))
    assert [problem.path for problem in caught.value.problems] == [f"operators.in{at}.dead_letter" for at in (0, 1)]
    a, b = letters("a", ("a/+", "b/dead")), letters("b", ("b/+", "a/dead"))
    [loop] = loops([b, a], "b")
    assert loop.certain
    assert str(loop) == "b.in0 (dead_letter) -> a/dead -> a.in0 (dead_letter) -> b/dead -> b.in0"


def test_dead_letters_that_the_other_source_may_read_make_a_loop_only_possible() -> None:
    a, b = letters("a", ("a/+", "b/dead")), letters("b", ("b/+", "a/dead"), codec="value")
    [loop] = loops([b, a], "b")
    assert not loop.certain
    [loop] = loops([letters("b", ("b/+", ""), publishes="a/x"), a], "b")  # what b reads is no dead letter
    assert not loop.certain


def test_rows_of_errors_make_a_loop_only_possible() -> None:
    a, b = letters("a", ("a/+", ""), errors="err/{flow}/{operator}"), flow("b", "err/#", "a/x")
    [loop] = loops([a, b], "a")
    assert (loop.certain, str(loop)) == (False, "a (on_error) -> err/a/{operator} -> b.out -> a/x -> a.in0")


TOPICS = [f"{a}/{b}" for a in "xyz" for b in "pq"]
FILTERS = [*TOPICS, "x/+", "+/q", "y/#"]


@st.composite
def several(draw: st.DrawFn) -> list[Flow]:
    """Flows of one source each, that do not read their own messages."""
    made: list[Flow] = []
    for name in "abcd"[: draw(st.integers(1, 4))]:
        reads = draw(st.sampled_from(FILTERS))
        others = st.sampled_from(["n/n", *(topic for topic in TOPICS if not matches(reads, topic))])
        made.append(letters(name, (reads, draw(others)), publishes=draw(others)))
    return made


@given(several())
def test_a_loop_is_told_where_messages_come_back_and_nowhere_else(flows: list[Flow]) -> None:
    def reached(parameters: set[str]) -> bool:
        """True if a message of the first flow leads to one that this flow reads."""
        waiting = [flows[0]]
        for at in waiting:
            topics = {"out": at.nodes["out"].parameters["topic"].text, "in0": at.nodes["in0"].parameters["dead_letter"]}
            for other in flows:
                if any(matches(other.nodes["in0"].parameters["topic"].filter, topics[p]) for p in parameters):
                    if other is flows[0]:
                        return True
                    waiting += [] if other in waiting else [other]
        return False

    found = loops(flows, "a")
    assert any(loop.certain for loop in found) == (reached({"out"}) or reached({"in0"}))
    assert bool(found) == reached({"out", "in0"})


def test_flows_whose_topics_do_not_meet_cost_a_look_each(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [0]
    fits = module.topics_fit

    def counted(topic: str, wanted: str) -> int:
        looks[0] += 1
        return fits(topic, wanted)

    monkeypatch.setattr(module, "topics_fit", counted)
    many = [flow(f"f{n}", "room/{source}", "out/{source}") for n in range(300)]
    search = Search(many)
    assert not any(search.loops(one.name) for one in many)
    assert looks[0] <= len(many)
    assert not loops([*many, flow("new", "hall/x", "room/y")], "new")
    assert looks[0] <= 5 * len(many)
