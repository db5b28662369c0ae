"""A fused source does what its stages do: the same messages through a flow with fusion and without."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgert.codecs.base import Captures, Decoded, one_by_one
from edgert.codecs.registry import make
from edgert.codecs.shapes import Fusible
from edgert.core.batch import RawBatch, Row
from edgert.core.text.topic_template import TopicTemplate
from edgert.operators.base.logic import Now
from edgert.operators.fusion.compiled_region import CompiledRegion
from edgert.operators.fusion.region import StageEdge
from edgert.operators.sources.event_times import NO_TIME
from edgert.operators.sources.source import Source
from edgert.operators.state.aggregate_calls import parse_aggregate
from edgert.operators.state.sketch_kinds import KINDS as SKETCHES
from edgert.operators.windows import CONTRIBUTION, TumblingWindow
from tests.operators.worlds import KINDS, NUMBERS, WALL, Way, payload, times

RAW = {"n": "count()", "n_t": "count(t)", "sum_t": "sum(t)", "var_t": "variance(t)", "low": "min(h)", "high": "max(h)",
       "rooms": "distinct(room)", "kinds": "distinct_set(t)", "spread": "quantiles(h)"}  # fmt: skip
"""Of fields that are decoded: of SenML always numbers within bounds."""
AGGREGATES = {"raw": RAW, "made": RAW | {"mean_k": "mean(k)"}}
CHAINS: dict[str, list[dict[str, Any]]] = {
    "no chain": [],
    "filter": [{"type": "filter", "where": "t >= -5 and (h < 90 or is_null(h))"}],
    "predicts": [
        {
            "type": "predict",
            "model": "m",
            "fields": ["t", "h"],
            "output": "k",
            "initial": {"kind": "linear_regression", "coefficients": {"t": 2, "h": 1}},
        },
        {"type": "predict", "model": "later", "fields": ["t"], "output": "t"},
    ],
    "annotates": [
        {"type": "annotate", "field": "room", "table": {"x": {"k": 1, "h": 7}}, "missing": "drop"},
        {"type": "annotate", "table": {"a": {"t": 4}}},
    ],
    "fails on some": [
        {"type": "filter", "where": "t > -8"},
        {"type": "map", "set": {"k": "t + 273", "t": "100 / t", "unused": "h * 2"}},
        {"type": "select", "fields": ["k", "t", "h", "room"]},
        {"type": "filter", "where": "k != 280 and room in ['x', 'z']"},
    ],
}
KEYS: dict[str, dict[str, Any]] = {
    "source": {"keys": ["source"]},
    "captured": {"keys": ["room", "source"]},
    "value": {"keys": ["h"], "key_types": {"h": "long"}},
}
QUERIES = [(codec, chain, key) for codec in ("json", "senml") for chain in CHAINS for key in KEYS]
QUERIES += [(codec, chain, "raw") for codec in ("json", "senml") for chain in ("no chain", "filter")]


def document(codec: str, chain: str, key: str) -> dict[str, Any]:
    operators: dict[str, Any] = {
        "in": {"type": "mqtt_source", "topic": "{room}/{source}", "codec": codec, "ahead": "drop",
               "dead_letter": "bad", "out_of_order_s": 1},
    }  # fmt: skip
    above = "in"
    for number, step in enumerate([*CHAINS[chain], {"type": "key_by", **KEYS.get(key, KEYS["source"])}]):
        operators[f"s{number}"] = {"input": above, **step}
        above = f"s{number}"
    window = {
        "type": "tumbling_window",
        "input": above,
        "size_s": 10,
        "lateness_s": 2,
        "aggregates": AGGREGATES["raw" if key == "raw" else "made"],
    }
    return {"name": "f", "operators": operators | {"w": window, "out": {"type": "ship", "input": "w"}}}


MESSAGES = st.tuples(
    st.sampled_from(["good"] * 12 + KINDS),
    st.sampled_from("ab"),
    st.sampled_from("xy"),
    st.one_of(NUMBERS, NUMBERS, NUMBERS, st.none(), st.booleans()),
    NUMBERS | st.none(),
)
STREAMS = st.lists(st.lists(MESSAGES, min_size=1, max_size=12), min_size=1, max_size=12)
GOOD = ("good", "a", "x", 1.0, 2.0)
ALL_KINDS = [[(kind, "a", "x", value, h) for kind in ["good", *KINDS] for h in (2.0, None)
              for value in (7.0, 0.0, -9.0, None, True)]]  # fmt: skip


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    keys = ("window_start", "source", "room", "h")
    return sorted(rows, key=lambda row: json.dumps([row[k] for k in keys if k in row]))


def told(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What sketches tell, instead of their bytes: these depend on the order in which values came."""
    return [{k: shown(k, v) if isinstance(v, bytes) else v for k, v in row.items()} for row in rows]


def shown(column: str, packed: bytes) -> object:
    kind = SKETCHES[column.split("__")[1]]
    return kind.results(kind.unpack(packed))


def held_bytes(way: Way) -> int:
    window = way.run.stages["w"].logic
    assert isinstance(window, TumblingWindow)
    return window.windows.held_bytes()


@pytest.mark.parametrize(("codec", "chain", "key"), QUERIES, ids=["-".join(query) for query in QUERIES])
@settings(max_examples=20)
@given(stream=STREAMS)
@example(stream=[[GOOD] * 5, *ALL_KINDS, [GOOD] * 5, [GOOD], [GOOD]])
@example(stream=[[GOOD] * 5, [GOOD] * 5, [("good", "a", "y", 1.0, 2.0)] * 3])
@example(stream=[[GOOD] * 5, [("good", "a" * 100, "x", 1.0, 2.0)] * 3])
def test_with_fusion_and_without_a_flow_says_the_same(
    codec: str, chain: str, key: str, stream: list[list[Any]]
) -> None:
    plain = document(codec, chain, key)
    fused, stages = Way(plain, "full"), Way(plain, "chains")
    assert len(fused.run.all) == 1
    for moment, messages in times(stream):
        payloads = [payload(codec, m[0], time, m[3], m[4]) for m, time in messages]
        topics = [f"{m[2]}/{'slow' if m[0] == 'late' else m[1]}" for m, _ in messages]
        for way in (fused, stages):
            way.feed(topics, payloads, moment)
        assert fused.drops() == stages.drops()
        assert fused.rows() == stages.rows()
        assert fused.letters == stages.letters
        for name in ("in", "w"):
            one, other = (way.run.stages[name].logic for way in (fused, stages))
            assert getattr(one, "devices", None) == getattr(other, "devices", None)
            assert getattr(one, "watermark", None) == getattr(other, "watermark", None)
        assert held_bytes(fused) == held_bytes(stages)
    assert in_order(told(fused.end())) == in_order(told(stages.end()))


@pytest.mark.parametrize("codec", ["json", "senml"])
def test_messages_of_a_learned_shape_never_become_rows(codec: str) -> None:
    way = Way(document(codec, "fails on some", "source"), "full")
    origin = way.run.stages["in"].logic
    assert isinstance(origin, Source)
    good = [payload(codec, "good", WALL + n, 1.0, 2.0) for n in range(10)]
    way.feed(["x/a"], good[:1], 0.0)  # with rows: until there is a watermark it may be one that was taken back
    way.feed(["x/a"] * 9, good[1:], 0.5)
    captured = {"room": "x", "source": "a"}
    decoded = origin.codec.decode_batch_untrusted(["x/a"] * 2, [good[0], b"no"], lambda topic: captured, WALL)
    assert (decoded.rows, len(decoded.bad_payloads)) == ([], 1)
    way.feed(["x/a"] * 3, [payload(codec, "good", WALL + 11, 0.0, 2.0)] * 3, 1.0)
    assert way.drops()["s0+s1+s2+s3+s4"] == {"division by zero in s1": 3}
    assert way.rows()["in"] == (13, 14), "one was decoded by hand"


class Plain:
    """A codec that an installed package might bring: nothing of it can be fused."""

    def __init__(self) -> None:
        self.codec = make("json", None)

    def decode_untrusted(
        self, payload: bytes, captures: Mapping[str, str], arrival_wall: float, out: list[Row], topic: str = ""
    ) -> int:
        return self.codec.decode_untrusted(payload, captures, arrival_wall, out, topic)

    def decode_batch_untrusted(
        self, topics: Sequence[str], payloads: Sequence[bytes], captures: Captures, wall: float
    ) -> Decoded:
        return one_by_one(self, topics, payloads, captures, wall)

    def encode(self, rows: Sequence[Row]) -> list[bytes]:
        return self.codec.encode(rows)


def test_a_codec_that_cannot_be_fused_takes_the_ordinary_way() -> None:
    assert not isinstance(Plain(), Fusible)
    window = TumblingWindow("w", 10.0, [parse_aggregate("n", "count()")], [("source", "string")])
    source = Source(TopicTemplate("{room}/{source}"), Plain(), out_of_order_s=0.0)
    assert CompiledRegion.fits([source, window], [StageEdge(0, 0, 1, 0)])
    fused = CompiledRegion([source, window], [StageEdge(0, 0, 1, 0)], [(1, CONTRIBUTION)])
    payloads = [b'{"time": 1}', b'{"time": 2}', b"no", b'{"time": 10}']
    out = fused.process(RawBatch(["x/a"] * 4, payloads, 0.0, 10.0), 0, Now(0.0, 10.0))
    assert [row["n"] for _, batch in out for row in batch.rows] == [2]
    assert fused.drops == {"bad_payload": 1}
    assert fused.gave[0] == 3


@pytest.mark.parametrize("codec", ["json", "senml"])
def test_what_has_no_time_while_the_clock_is_not_set_reaches_no_window(codec: str) -> None:
    window = TumblingWindow("w", 10.0, [parse_aggregate("n", "count()")], [("source", "string")])
    source = Source(TopicTemplate("{room}/{source}"), make(codec, None), out_of_order_s=0.0)
    fused = CompiledRegion([source, window], [StageEdge(0, 0, 1, 0)], [(1, CONTRIBUTION)])
    without = {"json": b'{"v": 1}', "senml": b'[{"n": "v", "v": 1}]'}[codec]
    timed = {"json": b'{"time": %d}', "senml": b'[{"bt": %d, "n": "v", "v": 1}]'}[codec]
    at = 1_700_000_000
    for wall in (float(at), 42.0):  # its shape is learned, and then the clock is lost
        fused.process(RawBatch(["x/a"] * 5, [without] * 5, 0.0, wall), 0, Now(0.0, wall))
    assert fused.drops == {NO_TIME: 5}
    out = fused.process(RawBatch(["x/a"], [timed % (at + 10)], 0.0, 42.0), 0, Now(1.0, 42.0))
    assert [(row["window_start"], row["n"]) for _, batch in out for row in batch.rows] == [(at, 5)]
