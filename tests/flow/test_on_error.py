"""`[on_error]` of a document: what may stand there, in TOML, JSON and Python."""

from __future__ import annotations

from typing import Any

import pytest

from edgert.core.errors import DocumentError
from edgert.core.toml import to_toml
from edgert.flow.document import from_plain, load, to_json
from edgert.flow.graph import Flow
from edgert.flow.options.on_error import OnError
from edgert.flow.schema import json_schema
from edgert.operators.builder import stream
from edgert.operators.registry import REGISTRY


def document(on_error: Any, topic: str = "x/{source}") -> dict[str, Any]:
    operators = {
        "in": {"type": "mqtt_source", "topic": topic},
        "out": {"type": "publish", "input": "in", "topic": "y/{source}"},
    }
    return {"name": "f", "on_error": on_error, "operators": operators}


def flow(on_error: Any) -> Flow:
    return from_plain(document(on_error), REGISTRY)


def problems(on_error: Any, topic: str = "x/{source}") -> dict[str, str]:
    with pytest.raises(DocumentError) as caught:
        from_plain(document(on_error, topic), REGISTRY)
    return {p.path: f"{p.expected}, got {p.got}" for p in caught.value.problems}


def test_a_flow_that_says_nothing_drops() -> None:
    plain = document({})
    del plain["on_error"]
    assert from_plain(plain, REGISTRY).on_error == flow({}).on_error == OnError("drop", None, 3, 0.1)


def test_toml_json_and_python_say_the_same() -> None:
    plain = document({"action": "retry", "topic": "bad/{flow}/{operator}/{source}", "tries": 5, "backoff_s": 0.5})
    built = (
        stream("f", on_error=plain["on_error"])
        .mqtt_source("x/{source}", name="in")
        .publish("y/{source}", name="out")
        .build()
    )
    assert built.document == load(to_toml(plain), REGISTRY).document == load(to_json(plain), REGISTRY).document == plain
    policy = built.on_error
    assert policy.topic
    assert (policy.action, policy.topic.text, policy.tries, policy.backoff_s) == (
        "retry", "bad/{flow}/{operator}/{source}", 5, 0.5,
    )  # fmt: skip


def test_the_time_before_a_try_doubles_up_to_a_minute() -> None:
    policy = OnError("retry", None, 100, 0.5)
    assert [policy.wait_s(n) for n in range(4)] == [0.5, 1.0, 2.0, 4.0]
    assert policy.wait_s(99) == 60.0


@pytest.mark.parametrize(
    ("on_error", "path", "message"),
    [
        (3, "on_error", "a table, got 3"),
        ({"acton": "drop"}, "on_error.acton", "(did you mean action?)"),
        ({"action": "ignore"}, "on_error.action", "one of drop, dead-letter, retry, got 'ignore'"),
        ({"action": ["drop"]}, "on_error.action", "one of drop"),
        ({"action": "dead-letter"}, "on_error.topic", "a topic, got nothing"),
        ({"action": "dead-letter", "topic": 3}, "on_error.topic", "a topic, got 3"),
        ({"action": "dead-letter", "topic": "a/#"}, "on_error.topic", "a topic without + and #"),
        ({"action": "dead-letter", "topic": "a/{room}"}, "on_error.topic", "only {flow}, {operator}, {source}"),
        ({"topic": "a"}, "on_error.topic", 'nothing, unless action = "dead-letter" or "retry"'),
        ({"tries": 3}, "on_error.tries", 'nothing, unless action = "retry", got 3'),
        ({"action": "retry", "tries": 0}, "on_error.tries", "an integer from 1 to 100, got 0"),
        ({"action": "retry", "tries": 1.5}, "on_error.tries", "an integer from 1 to 100, got 1.5"),
        ({"action": "retry", "tries": True}, "on_error.tries", "an integer from 1 to 100, got True"),
        ({"action": "retry", "backoff_s": float("nan")}, "on_error.backoff_s", "from 0.01 to 60 (s), got nan"),
        ({"action": "retry", "backoff_s": "1"}, "on_error.backoff_s", "from 0.01 to 60 (s), got '1'"),
    ],
)
def test_each_fault_is_said_with_its_place(on_error: Any, path: str, message: str) -> None:
    found = problems(on_error)
    assert list(found) == [path]
    assert message in found[path]


def test_a_wrong_action_hides_no_other_fault() -> None:
    found = problems({"action": "explode", "tries": 0, "backoff_s": "x", "topic": 3})
    assert list(found) == ["on_error.action", "on_error.topic", "on_error.tries", "on_error.backoff_s"]


@pytest.mark.parametrize(
    ("topic", "filter_", "loops"),
    [
        ("bad/{source}", "bad/{source}", True),
        ("bad/{source}", "#", True),
        ("bad/{source}", "bad/a/b", False),
        ("bad/{source}", "bad/kitchen", True),
        ("x/{flow}", "x/g", False),
        ("x/{flow}", "x/f", True),
        ("x/{operator}", "+/{source}", True),
        ("bad", "good", False),
        ("bad/in-{operator}", "bad/{source}", True),
        ("bad/a", "bad", False),
        ("bad", "bad/a", False),
    ],
)
def test_dead_letters_may_not_come_back_to_the_flow(topic: str, filter_: str, loops: bool) -> None:
    on_error = {"action": "dead-letter", "topic": topic}
    if loops:
        assert "a topic that no source of the flow reads itself" in problems(on_error, filter_)["on_error.topic"]
    else:
        from_plain(document(on_error, filter_), REGISTRY)


def test_the_schema_knows_it() -> None:
    properties = json_schema(REGISTRY)["properties"]["on_error"]["properties"]
    assert set(properties) == {"action", "topic", "tries", "backoff_s"}
