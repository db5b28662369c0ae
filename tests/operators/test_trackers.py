"""Operators that follow a field per key: against the textbook, and their state."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import Batch
from edgert.core.packing import pack, unpack
from edgert.flow.document import from_plain
from edgert.flow.physical import fields_needed
from edgert.operators.base.logic import Now
from edgert.operators.registry import REGISTRY
from edgert.operators.trackers import Interpolate, Kalman, SlidingRegression, Tracker
from tests.operators.bounds import limit, limit_to_held

NOW = Now(0.0, 0.0)
VALUES = st.lists(st.floats(-1e6, 1e6), max_size=30)
MAKERS: dict[str, Callable[[], Tracker]] = {
    "kalman": lambda: Kalman("v", "out", ["source"], 0.125, 0.32, 30.0),
    "sliding_regression": lambda: SlidingRegression("v", "out", ["source"], 4, 3),
    "interpolate": lambda: Interpolate("v", "v", ["source"], 3),
}


def row(value: Any, source: str = "a", **more: Any) -> dict[str, Any]:
    return {"time": 0.0, "source": source, "v": value, **more}


def fed(made: Tracker, *rows: dict[str, Any]) -> list[Any]:
    (emission,) = made.process(Batch(list(rows), 0.0, 1.0), 0, NOW)
    return [r.get("out", r["v"]) for r in emission.batch.rows]


@given(VALUES)
def test_kalman_is_the_textbook_filter(values: list[float]) -> None:
    got = fed(MAKERS["kalman"](), *map(row, values))
    estimate = error = None
    for value, made in zip(values, got, strict=True):
        if estimate is None or error is None:
            estimate, error = value, 30.0
        else:
            error += 0.125
            gain = error / (error + 0.32)
            estimate, error = estimate + gain * (value - estimate), (1 - gain) * error
        assert made == pytest.approx(estimate, rel=1e-9, abs=1e-9)


@given(VALUES, st.integers(2, 6), st.integers(0, 5))
def test_the_line_is_that_of_least_squares(values: list[float], window: int, ahead: int) -> None:
    got = fed(SlidingRegression("v", "out", ["source"], window, ahead), *map(row, values))
    for at, made in enumerate(got):
        if at + 1 < window:
            assert made is None
            continue
        last = values[at + 1 - window : at + 1]
        slope, intercept = statistics.linear_regression(range(window), last)
        scale = max(map(abs, last), default=1.0)
        assert made == pytest.approx(intercept + slope * (window - 1 + ahead), rel=1e-6, abs=1e-9 + 1e-9 * scale)


def test_what_is_missing_is_the_mean_of_the_last_values() -> None:
    made = MAKERS["interpolate"]()
    rows = [row(None), row(1.0), row(2.0), row(None), {"time": 0.0, "source": "a"}, row(6.0), row(7.0), row(None)]
    assert fed(made, *rows) == [None, 1.0, 2.0, 1.5, 1.5, 6.0, 7.0, 5.0]
    assert fed(made, row(None, "b")) == [None], "another key knows nothing of it"


def test_values_that_are_there_are_left_as_they_are() -> None:
    made = MAKERS["interpolate"]()
    rows = [row(v) for v in (12, 2**53 + 1, "abc", True, 1e151, 2.5)]
    (emission,) = made.process(Batch(rows, 0.0, 1.0), 0, NOW)
    assert emission.batch.rows == rows
    assert [type(r["v"]) for r in emission.batch.rows] == [int, int, str, bool, float, float]
    assert made.drops == {"bad_value (values)": 3}


@pytest.mark.parametrize("error", [30.0, 1e15, 1e17, 1e100])
@pytest.mark.parametrize("noise", [1e-6, 0.32])
def test_without_drift_kalman_is_the_mean_however_little_is_known_at_first(error: float, noise: float) -> None:
    made = Kalman("v", "out", ["source"], 0.0, noise, error)
    values = [100.0, 10.0] + [20.0] * 50
    # the first value has the variance `error`, the others that of the sensor
    weights = [noise / error] + [1.0] * 51
    mean = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    assert fed(made, *map(row, values))[-1] == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_no_number_is_counted_and_changes_nothing(name: str) -> None:
    made, same = MAKERS[name](), MAKERS[name]()
    good = [row(float(n * n)) for n in range(6)]
    bad = [row(v) for v in ("x", True, float("nan"), float("inf"), 1e200, 10**400)]
    assert fed(made, *good[:3], *bad, *good[3:])[-3:] == fed(same, *good)[-3:]
    assert made.drops == {"bad_value (values)": len(bad)}
    assert made.tracks == same.tracks


STEPS = st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(-9, 9).map(float)), max_size=6)


@pytest.mark.parametrize("name", MAKERS)
@given(batches=st.lists(STEPS, max_size=5))
def test_deltas_and_snapshots_bring_it_back(name: str, batches: list[list[tuple[str, float | None]]]) -> None:
    made, by_deltas, by_snapshot = (MAKERS[name]() for _ in range(3))
    for batch in batches:
        fed(made, *(row(value, source) for source, value in batch))
        if (delta := made.delta()) is not None:
            by_deltas.restore(unpack(pack(delta)))
    if (snapshot := made.snapshot()) is not None:
        by_snapshot.restore(unpack(pack(snapshot)))
    assert by_deltas.tracks == by_snapshot.tracks == made.tracks
    rest = [row(float(n), source) for n in range(5) for source in "ab"]
    assert fed(by_deltas, *rest) == fed(by_snapshot, *rest) == fed(made, *rest)


def test_keys_are_bounded() -> None:
    made, again = MAKERS["kalman"](), MAKERS["kalman"]()
    for source in "abc":
        if source == "c":
            limit_to_held(made, again)
        fed(made, row(1.0, source))
        again.restore(made.delta())
    assert list(made.tracks) == list(again.tracks) == ["b", "c"]
    assert made.drops == {"too many keys (keys)": 1}


def test_with_long_windows_fewer_keys_are_followed() -> None:
    long, short = (SlidingRegression("v", "ahead", ["source"], window, 1) for window in (100, 2))
    limit(3 * 4_300, long, short)
    for source in "abcde":
        fed(long, row(1.0, source))
        fed(short, row(1.0, source))
    assert (list(long.tracks), long.drops) == (["c", "d", "e"], {"too many keys (keys)": 2})
    assert (len(short.tracks), short.drops) == (5, {})


def test_a_flow_with_all_of_them_decodes_what_they_need() -> None:
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "by": {"type": "key_by", "input": "in", "keys": ["source", "room"]},
        "filled": {"type": "interpolate", "input": "by", "field": "t"},
        "by2": {"type": "key_by", "input": "filled", "keys": ["source"]},
        "smooth": {"type": "kalman", "input": "by2", "field": "t"},
        "soon": {"type": "sliding_regression", "input": "smooth", "field": "estimate"},
        "brief": {"type": "select", "input": "soon", "fields": ["estimate", "ahead"]},
        "out": {"type": "publish", "input": "brief", "topic": "y"},
    }
    assert fields_needed(from_plain({"name": "f", "operators": operators}, REGISTRY), REGISTRY, "in") == frozenset(
        {"t", "room"}
    )
