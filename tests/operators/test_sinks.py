"""`publish`, `ship` and fused chains as logic."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from edgert.codecs.registry import make
from edgert.core.batch import NO_WATERMARK, Batch
from edgert.core.errors import DocumentError
from edgert.core.text.topic_template import TopicTemplate
from edgert.flow.document import from_plain
from edgert.flow.physical import fields_needed
from edgert.operators.base.logic import Build, Now
from edgert.operators.fusion.chain import Chain
from edgert.operators.registry import REGISTRY
from edgert.operators.sinks import PublishSink, Ship, make_publish
from tests.named import named

NOW = Now(0.0, 0.0)


def rows(*values: Any) -> Batch:
    return Batch([{"time": 1.0, "source": "a", "v": v} for v in values], 0.0, 5.0, 100 * len(values))


def test_publish_sends_a_message_per_row_to_the_topic_that_the_row_gives() -> None:
    made = PublishSink(TopicTemplate("alerts/{source}/{v}", sink=True), make("json"), 1, True)
    assert made.process(rows(1, 2), 0, NOW) == ()
    assert [(m.topic, m.qos, m.retain) for m in named(made.messages)] == [
        ("alerts/a/1", 1, True),
        ("alerts/a/2", 1, True),
    ]
    assert json.loads(named(made.messages)[0].payload)["v"] == 1


def test_a_row_that_cannot_be_written_is_counted_and_lost_alone() -> None:
    made = PublishSink(TopicTemplate("alerts/{v}", sink=True), make("json"))
    made.process(rows("ok", "a/b", None, "#", "", "fine"), 0, NOW)
    assert [m.topic for m in named(made.messages)] == ["alerts/ok", "alerts/fine"]
    assert made.drops == {"unwritable row": 4}
    assert [row["v"] for row, _ in made.lost] == ["a/b", None, "#", ""], "for the dead letters"
    assert "expected field 'v' to hold a topic level" in made.lost[0][1]


def publishing(**parameters: Any) -> Any:
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "out": {"type": "publish", "input": "in", "topic": "t/{room}", **parameters},
    }
    return from_plain({"name": "f", "operators": operators}, REGISTRY)


def test_a_field_can_be_published_alone() -> None:
    flow = publishing(payload_field="v")
    assert fields_needed(flow, REGISTRY, "in") == frozenset({"v", "room"})
    made = make_publish(Build(flow.nodes["out"], flow, None, (), 1, frozenset()))
    values = [21.5, 3, "warm ü", True, {"a": [1]}, None, "", "\ud800"]
    made.process(Batch([{"time": 1.0, "source": "a", "room": "r", "v": v} for v in values], 0.0), 0, NOW)
    assert [m.payload for m in named(made.messages)] == [b"21.5", b"3", "warm ü".encode(), b"true", b'{"a":[1]}', b""]
    assert made.drops == {"unwritable row": 2}


def test_a_field_alone_has_no_codec() -> None:
    assert fields_needed(publishing(), REGISTRY, "in") is None
    for parameters, path in (({"codec": "senml"}, "codec"), ({"payload_field": "\0"}, "payload_field")):
        with pytest.raises(DocumentError) as refused:
            publishing(**{"payload_field": "v", **parameters})
        assert [p.path for p in refused.value.problems] == [f"operators.out.{path}"]


def test_ship_gives_each_contribution_to_one_checkpoint() -> None:
    made = Ship()
    made.process(rows(1), 0, NOW)
    made.process(rows(2, 3), 0, NOW)
    assert [r["v"] for r in made.take()] == [1, 2, 3]
    assert made.take() == []
    made.process(rows(6), 0, NOW)
    made.give_back(list(rows(4, 5).rows))
    assert [r["v"] for r in made.take()] == [4, 5, 6]


def test_contributions_can_be_taken_while_a_turn_adds_some() -> None:
    made, taken = Ship(), list[Any]()

    def turns() -> None:
        for n in range(3_000):
            made.process(rows(2 * n, 2 * n + 1), 0, NOW)

    worker = threading.Thread(target=turns)
    worker.start()
    while worker.is_alive():
        taken += made.take()
    worker.join()
    taken += made.take()
    assert [r["v"] for r in taken] == list(range(6_000))


def flow(*stateless: dict[str, Any]) -> Any:
    operators: dict[str, Any] = {"in": {"type": "mqtt_source", "topic": "x/{source}"}}
    last = "in"
    for number, plain in enumerate(stateless):
        last = f"op{number}"
        operators[last] = {**plain, "input": list(operators)[-1]}
    operators["out"] = {"type": "publish", "input": last, "topic": "t"}
    return from_plain({"name": "f", "operators": operators}, REGISTRY)


def fused(*stateless: dict[str, Any]) -> Chain:
    made = flow(*stateless)
    return Chain([made.nodes[f"op{n}"] for n in range(len(stateless))])


def test_a_chain_keeps_arrival_and_watermark_and_leaves_the_size_to_be_measured() -> None:
    made = fused({"type": "filter", "where": "v > 1"}, {"type": "map", "set": {"w": "v * 2"}})
    ((port, batch),) = made.process(rows(1, 2, 3, 4), 0, NOW)
    assert (port, [r["w"] for r in batch.rows]) == (0, [4, 6, 8])
    assert (batch.arrival, batch.watermark, batch.size) == (0.0, 5.0, 0)


def test_a_row_that_fails_is_counted_by_operator_and_lost_alone() -> None:
    made = fused({"type": "map", "set": {"w": "1 / v"}}, {"type": "filter", "where": "w > 0"})
    given = rows(1, 0, 2)
    ((_, batch),) = made.process(given, 0, NOW)
    assert [r["w"] for r in batch.rows] == [1.0, 0.5]
    ((reason, count),) = made.drops.items()
    assert count == 1
    assert reason.endswith("in op0")
    assert [r["v"] for r in given.rows] == [1, 0, 2], "rows given are shared, and stay as they were"


def test_an_empty_batch_passes_only_for_its_watermark() -> None:
    made = fused({"type": "filter", "where": "v > 1"})
    assert made.process(Batch([], 0.0), 0, NOW) == ()
    assert made.process(Batch([{"time": 1.0, "source": "a", "v": 0}], 0.0, NO_WATERMARK, 9), 0, NOW) == ()
    ((_, batch),) = made.process(Batch([], 0.0, 7.0), 0, NOW)
    assert (batch.rows, batch.watermark, batch.size) == ([], 7.0, 0)


@pytest.mark.parametrize(
    ("operators", "paths"),
    [
        ({"s": {"type": "ship", "input": "in"}}, ["operators.s.input"]),
        (
            {
                "w": {"type": "tumbling_window", "input": "in", "size_s": 1, "aggregates": {"n": "count()"}},
                "s": {"type": "ship", "input": "w"},
                "t": {"type": "ship", "input": "w"},
            },
            ["operators.s.type", "operators.t.type"],
        ),
        ({"p": {"type": "publish", "input": "in", "topic": "a/+"}}, ["operators.p.topic"]),
    ],
)
def test_sinks_that_cannot_be_are_refused_with_their_path(operators: dict[str, Any], paths: list[str]) -> None:
    with pytest.raises(DocumentError) as refused:
        from_plain({"name": "f", "operators": {"in": {"type": "mqtt_source", "topic": "x"}, **operators}}, REGISTRY)
    assert sorted(p.path for p in refused.value.problems) == paths
