"""Whatever stands behind a source: compiled with it, a flow says what its operators say one by one, in that order."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.riotbench.flows import APPLICATIONS
from edgert.codecs.base import Captures, Decoded
from edgert.codecs.json import JsonCodec
from edgert.core.batch import NO_WATERMARK, RawBatch
from edgert.core.text.topic_template import TopicTemplate
from edgert.flow.check import check
from edgert.operators.base.inline import Fields, Lines, alone
from edgert.operators.base.logic import Now
from edgert.operators.fusion import code_tree
from edgert.operators.fusion.chain import Chain
from edgert.operators.fusion.compiled_region import APART_S, CompiledRegion
from edgert.operators.fusion.region import StageEdge
from edgert.operators.registry import REGISTRY
from edgert.operators.sinks import PublishSink
from edgert.operators.sources.source import Source
from tests.examples import examples
from tests.named import named
from tests.operators.worlds import KINDS, NUMBERS, WALL, Way, deltas, payload, said, times

SPLIT = {"field": "t", "threshold": 2, "at_most": {"value": "low"}, "above": {"value": 7}}
TREE = {"kind": "decision_tree", "tree": SPLIT}
LINE = {"kind": "linear_regression", "intercept": 0.5, "coefficients": {"t": 2, "h": -1}}
STATELESS: list[dict[str, Any]] = [
    {"type": "filter", "where": "t > -3"},
    {"type": "filter", "where": "k > 0 or is_null(k)"},
    {"type": "map", "set": {"k": "t * 2 - h", "h": "coalesce(h, 1)"}},
    {"type": "map", "set": {"k": "10 / t", "unused": "h"}},
    {"type": "map", "set": {"room": "if(h > 2, 'warm', null)"}},
    {"type": "select", "fields": ["t", "k", "room", "mean_t"]},
    {"type": "select", "fields": ["h"]},
    {"type": "predict", "model": "m", "fields": ["t", "h"], "output": "k", "initial": LINE},
    {"type": "predict", "model": "n", "fields": ["t"], "output": "k", "initial": TREE},
    {"type": "predict", "model": "later", "fields": ["t"], "output": "h"},
    {"type": "annotate", "field": "room", "table": {"x": {"k": 1, "note": "a"}}, "missing": "drop"},
    {"type": "annotate", "field": "source", "table": {"a": {"h": 4}}},
]
OTHERS: list[dict[str, Any]] = [
    {"type": "count_window", "size": 3, "aggregates": {"mean_t": "mean(t)", "n": "count(k)", "rooms": "count(room)"}},
    {"type": "count_window", "size": 1, "aggregates": {"mean_t": "max(h)"}},
    {"type": "kalman", "field": "t", "output": "h"},
    {"type": "kalman", "field": "k"},
    {"type": "sliding_regression", "field": "t", "output": "k", "window": 2},
    {"type": "interpolate", "field": "t", "window": 2},
    {"type": "interpolate", "field": "k"},
    {"type": "distinct_count", "field": "t", "output": "k"},
    {"type": "second_moment", "field": "t", "output": "k", "standard_error": 0.5},
    {"type": "second_moment", "field": "h", "period_s": 10},
    {"type": "bloom_filter", "values": ["a"]},
    {"type": "bloom_filter", "fields": ["t"], "values": ["1", "2", "-3", "warm"]},
    {"type": "bloom_filter", "mode": "first_seen", "fields": ["h", "room"], "expected_items": 30},
]
SINKS: list[dict[str, Any]] = [
    {"type": "publish", "topic": "all/{source}"},
    {"type": "publish", "topic": "one"},
    {"type": "publish", "topic": "as/{room}", "codec": "senml"},
    {"type": "publish", "topic": "of/{room}/{source}", "payload_field": "k"},
    {"type": "publish", "topic": "num/{k}"},
]
WINDOW = {"type": "tumbling_window", "size_s": 10, "lateness_s": 20, "aggregates": {"n": "count()", "s": "sum(k)"}}
KEYS: list[dict[str, Any]] = [
    {"type": "key_by", "keys": ["source"]},
    {"type": "key_by", "keys": ["h"], "key_types": {"h": "long"}},
    {"type": "key_by", "keys": ["room", "source"]},
]
JOIN = {"type": "join_latest", "fields": ["mean_t", "k"]}
JOINS: list[dict[str, Any]] = [
    JOIN,
    JOIN | {"missing": "drop"},
    JOIN | {"max_age_s": 3.0},
    JOIN | {"missing": "drop", "max_age_s": 3.0},
    JOIN | {"on": ["room"]},
]
VALUES = {"temperature": 20.0, "humidity": 50.0, "light": 3.0, "dust": 400.0, "airquality_raw": 20.0}
PACK = json.dumps({"e": [{"v": str(v), "u": "x", "n": n} for n, v in VALUES.items()], "bt": WALL * 1e3}).encode()
MESSAGES = st.tuples(
    st.sampled_from(["good"] * 40 + KINDS), st.sampled_from("ab"), st.sampled_from("xy"),
    st.one_of(NUMBERS, NUMBERS, NUMBERS, st.none(), st.booleans()), NUMBERS | st.none(),
)  # fmt: skip
STREAMS = st.lists(st.lists(MESSAGES, min_size=2, max_size=12), min_size=2, max_size=12)
"""Most fit a shape: what does not makes rows of all that comes behind it in its batch."""


def documents(draw: Callable[[st.SearchStrategy[Any]], Any], codec: str) -> dict[str, Any]:
    """Some operators, each behind one that came before; a join is behind two. At each end a sink."""
    operators: dict[str, Any] = {
        "in": {
            "type": "mqtt_source",
            "topic": "in/{room}/{source}",
            "codec": codec,
            "dead_letter": "bad",
            "ahead": draw(st.sampled_from(["keep", "drop"])),
        }
    }
    read: set[str] = set()
    for number in range(draw(st.integers(1, 7))):
        name = f"o{number}"
        above = draw(st.sampled_from(list(operators)))
        kind = draw(st.sampled_from(["stateless"] * 4 + ["other"] * 4 + ["join", "window", "window"]))
        if kind == "stateless":
            operators[name] = {"input": above, **draw(st.sampled_from(STATELESS))}
        elif kind == "join" and len(operators) > 1:
            beside = draw(st.sampled_from([o for o in operators if o != above]))
            operators[name] = {"inputs": [above, beside], **draw(st.sampled_from(JOINS))}
            read.add(beside)
        else:
            operators[f"k{number}"] = {"input": above, **draw(st.sampled_from(KEYS))}
            window = WINDOW if kind == "window" else draw(st.sampled_from(OTHERS))
            operators[name] = {"input": f"k{number}", **window}
            read.add(f"k{number}")
        read.add(above)
    for name in list(operators):
        if name not in read or draw(st.integers(0, 3)) == 0:
            if not name.startswith("k"):
                sink = draw(st.sampled_from(SINKS))
                operators[f"to_{name}"] = {"input": name, **sink, "topic": f"{name}/{sink['topic']}"}
            elif name not in read:
                operators[f"to_{name}"] = {"input": name, "type": "publish", "topic": "k"}
    return {"name": "f", "operators": operators}


FLOWS = st.sampled_from(["json", "senml"]).flatmap(st.composite(documents))


def offer(way: Way, model: dict[str, Any]) -> None:
    """A message brings it for all who predict."""
    for stage in way.run.stages.values():
        if isinstance(stage.logic, Chain):
            predictions = stage.logic.predictions
            for name, node in predictions.nodes.items():
                if "h" in node.parameters["fields"] or model is TREE:
                    predictions.offer(name, predictions.checked_untrusted(name, model))


ABOVE: dict[str, Any] = {"in": {"type": "mqtt_source", "topic": "in/{room}/{source}"}}
EACH = [{"a": {"input": "in", **operator}} for operator in STATELESS + OTHERS + [WINDOW] + SINKS]
EACH += [{"a": {"input": "in", "type": "map", "set": {"k": "t", "mean_t": "t"}}, "b": {"inputs": ["in", "a"], **join}}
         for join in JOINS]  # fmt: skip


@pytest.mark.parametrize("operators", EACH, ids=lambda operators: str(list(operators.values())[-1])[:60])
def test_nothing_is_left_out_of_the_comparison_for_being_wrong(operators: dict[str, Any]) -> None:
    name, last = list(operators.items())[-1]
    sinks = {} if last["type"] == "publish" else {"z": {"input": name, **SINKS[0]}}
    _, problems = check({"name": "f", "operators": ABOVE | operators | sinks}, REGISTRY)
    assert not problems


@settings(max_examples=examples(30, 200), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(plain=FLOWS, stream=STREAMS, timed=st.booleans())
def test_a_tree_says_what_its_operators_say_one_by_one(
    plain: dict[str, Any], stream: list[list[Any]], timed: bool
) -> None:
    codec = plain["operators"]["in"]["codec"]
    assume(not check(plain, REGISTRY)[1])
    whole, stages = Way(plain, "full"), Way(plain, "chains")
    if timed:  # then some turns go the ordinary way
        for instance in whole.run.all:
            instance.time_by(lambda: 0.0)
    learned = [("good", device, "x", 3.0, 2.0) for device in "abba"]
    for number, (moment, messages) in enumerate(times([learned, *stream])):
        payloads = [payload(codec, m[0], time, m[3], m[4]) for m, time in messages]
        topics = [f"in/{m[2]}/{'slow' if m[0] == 'late' else m[1]}" for m, _ in messages]
        for way in (whole, stages):
            way.feed(topics, payloads, moment)
        assert said(whole) == said(stages)
        assert whole.drops() == stages.drops()
        assert whole.rows() == stages.rows()
        if number % 4 == 2:
            assert deltas(whole) == deltas(stages)
            for way in (whole, stages):
                offer(way, TREE if number % 8 == 2 else LINE)
    assert deltas(whole) == deltas(stages)  # with models that came since the last batch
    for name, stage in whole.run.stages.items():
        assert stage.logic.snapshot() == stages.run.stages[name].logic.snapshot()


@pytest.fixture
def pred() -> Way:
    """The largest of the benchmarks' flows that is lines from its source to its sinks."""
    return Way(APPLICATIONS["pred"](), "full", "readings")


def decoded(way: Way, messages: int) -> list[Any]:
    """What of so many messages becomes rows."""
    source = way.run.stages["readings"].logic
    assert isinstance(source, Source)
    topics, payloads = ["city/a/sense"] * messages, [PACK] * messages
    return source.codec.decode_batch_untrusted(topics, payloads, lambda topic: {"source": "a"}, WALL).rows


def test_from_source_to_sinks_no_row_is_made(pred: Way) -> None:
    pred.feed(["city/a/sense"] * 5, [PACK] * 5, 0.0)
    assert decoded(pred, 25) == []
    pred.feed(["city/a/sense"] * 2, [PACK] * 2, 1.0)
    assert pred.rows()["classes"] == (32, 0)
    assert [topic for topic, _ in pred.letters].count("pred/a/error") == 32


def test_parts_are_timed_in_turns_that_go_the_ordinary_way(pred: Way) -> None:
    ticks = itertools.count()
    (instance,) = pred.run.all
    instance.time_by(lambda: float(next(ticks)))
    region = instance.region
    assert isinstance(region, CompiledRegion)
    for turn in range(5):
        pred.feed(["city/a/sense"] * 5, [PACK] * 5, 1.0 + turn * APART_S)
    assert len(region.sample) == len(region.stages)
    assert all(region.sample), "each stage took its time"
    pred.feed(["city/a/sense"] * 5, [PACK] * 5, 1.1 + 4 * APART_S)
    assert pred.rows()["errors"] == (30, 0)


def test_what_is_too_deep_for_python_goes_the_ordinary_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are compiled for each shape that comes: what they cannot hold must not stop the flow then."""
    way = Way(APPLICATIONS["pred"](), "full", "readings")

    def too_deep(*given: object) -> None:
        raise RecursionError

    monkeypatch.setattr(code_tree, "alone", too_deep)
    way.feed(["city/a/sense"] * 9, [PACK] * 9, 0.0)
    assert len(decoded(way, 7)) == 7
    assert (way.rows()["errors"], way.drops()["readings"]) == ((9, 0), {})


def test_names_in_lines_are_an_operators_own_and_texts_are_not_touched() -> None:
    row = Fields({"time": "t", "source": "source", "t": "x1"}, sure=frozenset({"t"}))
    lines = Lines(
        check=["a = x1 + find('a b', key=t)", "if a:", "    break"],
        effect=["sink.say(a)"],
        setup=["a = 0"],
        row=Fields({"time": "t", "made": "a"}, sure=frozenset({"t", "a"})),
        constants={"find": max, "sink": None},
    )
    made = alone(lines, row, "_7")
    assert list(made.check) == ["a_7 = x1 + find_7('a b', key=t)", "if a_7:", "    break"]
    assert (list(made.effect), list(made.setup)) == (["sink_7.say(a_7)"], ["a_7 = 0"])
    assert made.row is not None
    assert made.row.variables == {"time": "t", "made": "a_7"}
    assert made.row.sure == {"t", "a_7"}
    assert made.constants.keys() == {"find_7", "sink_7"}
    assert made.lets_go


def test_a_model_that_is_too_large_for_lines_is_used_all_the_same() -> None:
    def split(low: float, high: float, depth: int) -> dict[str, Any]:
        middle = (low + high) / 2
        halves = {"at_most": split(low, middle, depth - 1), "above": split(middle, high, depth - 1)} if depth else {}
        return {"field": "t", "threshold": middle, **halves} if depth else {"value": middle}

    predict = {"type": "predict", "input": "in", "model": "later", "fields": ["t"], "output": "k"}
    way = Way({"name": "f", "operators": ABOVE | {"a": predict, "b": {"input": "a", **SINKS[0]}}}, "full")
    region = way.run.all[0].region
    assert isinstance(region, CompiledRegion)
    assert len(region.tree.entries) == 2
    model = {"kind": "decision_tree", "tree": split(0.0, 512.0, 9)}
    for moment in (0.0, 1.0):
        way.feed(["in/x/a"] * 5, [b'{"time": 1700000000, "t": 3.5}'] * 5, moment)
        offer_to = way.run.stages["a"].logic
        assert isinstance(offer_to, Chain)
        offer_to.predictions.offer("a", offer_to.predictions.checked_untrusted("a", model))
    assert region.tree.entries == []
    assert [json.loads(message)["k"] for _, message in way.letters] == [None] * 5 + [3.5] * 5


class Warmer(JsonCodec):
    """A codec of a package that builds on one of ours."""

    def decode_batch_untrusted(
        self, topics: Sequence[str], payloads: Sequence[bytes], captures: Captures, wall: float
    ) -> Decoded:
        decoded = super().decode_batch_untrusted(topics, payloads, captures, wall)
        for row in decoded.rows:
            row["t"] += 100
        return decoded


def test_a_codec_that_builds_on_another_decodes_what_it_decodes() -> None:
    source = Source(TopicTemplate("{room}/{source}"), Warmer())
    sink = PublishSink(TopicTemplate("{source}", sink=True), JsonCodec())
    made = CompiledRegion([source, sink], [StageEdge(0, 0, 1, 0)])
    for moment in (0.0, 1.0):
        made.process(RawBatch(["x/a"] * 5, [b'{"time": 1, "t": 1}'] * 5, moment, WALL), 0, Now(moment, WALL))
    assert [json.loads(message.payload)["t"] for message in named(made.messages)] == [101] * 10


@pytest.mark.parametrize("last", [SINKS[0], WINDOW])
def test_the_watermark_is_reckoned_and_devices_are_noted_where_it_matters_to_somebody(last: dict[str, Any]) -> None:
    operators = ABOVE | {"a": {"input": "in", **STATELESS[0]}, "b": {"input": "a", **last}}
    if last is WINDOW:
        operators["c"] = {"input": "b", **SINKS[0]}
    way = Way({"name": "f", "operators": operators}, "full")
    source = way.run.stages["in"].logic
    assert isinstance(source, Source)
    for moment in (0.0, 0.1, 0.2):
        payloads = [b'{"time": %d, "t": 1}' % (WALL + 10 * moment), b'{"time": %d, "t": 1}' % (WALL + 1e4)]
        way.feed(["in/x/a", "in/x/b"], payloads, moment)
    assert source.drops["ahead of time (kept)"] == 3
    if last is WINDOW:
        assert source.devices.watermark > NO_WATERMARK
        assert set(source.devices.latest) == {"a", "b"}
    else:
        assert source.devices.watermark == NO_WATERMARK
        assert source.snapshot() == Source(TopicTemplate("{source}"), JsonCodec()).snapshot()
        assert source.delta() is None


def both_ways(operators: dict[str, Any], batches: list[tuple[float, list[tuple[str, float, float]]]]) -> list[Any]:
    """What is said and dropped with lines and without; of each message its device, time and `t`."""
    found = []
    for fusion in ("full", "chains"):
        way = Way({"name": "f", "operators": ABOVE | operators}, fusion)
        for moment, messages in batches:
            payloads = [json.dumps({"time": WALL + time, "t": t}).encode() for _, time, t in messages]
            way.feed([f"in/x/{device}" for device, _, _ in messages], payloads, moment)
        found.append((said(way), way.drops(), way.rows()))
    return found


def test_what_is_too_old_to_be_joined_is_let_go_and_takes_no_other_devices_value() -> None:
    operators = {
        "a": {"input": "in", "type": "count_window", "size": 1, "aggregates": {"mean_t": "max(t)"}},
        "j": {"inputs": ["in", "a"], **JOIN, "fields": ["mean_t"], "missing": "drop", "max_age_s": 3.0},
        "p": {"input": "j", **SINKS[0]},
    }
    both = [(n, [("a", n, n), ("b", n, 1000.0 + n)]) for n in map(float, range(6))]
    later = [(n, [("a", n, n)]) for n in map(float, range(6, 20))]
    one, other = both_ways(operators, [*both, *later, (20.0, [("a", 20.0, 20.0), ("b", 20.0, 5000.0)])])
    assert one == other
    assert one[1]["j"]["nothing to join"] == 3, "the first of each, and the last of b"


def test_rows_by_lines_and_rows_of_the_same_batch_come_to_a_window_at_once() -> None:
    """Else it would say a correction twice."""
    operators = {
        "m": {"input": "in", **STATELESS[3]},
        "s": {"input": "m", **OTHERS[2]},
        "w": {"input": "s", **WINDOW},
        "p": {"input": "w", "type": "publish", "topic": "w"},
    }
    early = [(n, [("a", n, 1.0)]) for n in (3.0 * k for k in range(8))]
    late = (26.0, [("a", 5.0, 1.0), ("a", 6.0, 0.0), ("a", 7.0, 1.0)])  # by zero, which lines refuse
    one, other = both_ways(operators, [*early, late, (29.0, [("a", 29.0, 1.0)])])
    assert one == other
    assert one[1]["m"] == {"division by zero in m": 1}
