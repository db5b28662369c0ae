"""`distinct_count` and `second_moment`: estimates per key, their periods, and their state."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import Batch
from edgert.core.errors import DocumentError
from edgert.core.packing import pack, unpack
from edgert.flow.document import from_plain
from edgert.flow.physical import fields_needed
from edgert.operators.base.logic import Now
from edgert.operators.registry import REGISTRY
from edgert.operators.sketched import MEMORY_BYTES, DistinctCount, Moment, Sketched
from tests.operators.bounds import limit_to_held

NOW = Now(0.0, 0.0)
MAKERS: dict[str, Callable[..., Sketched]] = {
    "distinct": lambda period_s=0.0: DistinctCount("v", "out", ["source"], period_s, 0.26),
    "moment": lambda period_s=0.0: Moment("v", "out", ["source"], period_s, 0.5),
}
EXACT: dict[str, Callable[[list[Any]], float]] = {
    "distinct": lambda values: len(set(values)),
    "moment": lambda values: sum(n * n for n in Counter(values).values()),
}


def row(value: Any, source: str = "a", time: float = 0.0) -> dict[str, Any]:
    return {"time": time, "source": source, "v": value}


def fed(made: Sketched, *rows: dict[str, Any], now: Now = NOW) -> list[Any]:
    (emission,) = made.process(Batch(list(rows), 0.0, 1.0), 0, now)
    for before, after in zip(rows, emission.batch.rows, strict=True):
        assert after == before | {"out": after["out"]}
    return [r["out"] for r in emission.batch.rows]


@pytest.mark.parametrize(
    ("name", "made", "bound"),
    [
        ("distinct", DistinctCount("v", "out", ["source"], 0.0, 0.0325), 4 * 0.0325),
        ("moment", Moment("v", "out", ["source"], 0.0, 0.05), 4 * 0.05),
    ],
)
def test_each_row_gets_the_estimate_of_its_key_so_far(name: str, made: Sketched, bound: float) -> None:
    rows = [row(f"value-{n * n % 700}", "ab"[n % 2]) for n in range(4_000)]
    got = fed(made, *rows)
    for source in "ab":
        values: list[str] = []
        for at, r in enumerate(rows):
            if r["source"] == source:
                values.append(r["v"])
                if at % 97 < 2:
                    true = EXACT[name](values)
                    assert got[at] == pytest.approx(true, rel=bound), (source, at)
    assert not made.drops


@pytest.mark.parametrize("name", MAKERS)
def test_null_changes_nothing_and_what_is_no_value_is_counted(name: str) -> None:
    made = MAKERS[name]()
    assert fed(made, row(None), row("x"), row(None), {"time": 0.0, "source": "a"}, row(float("nan")), row([1])) == [
        0, 1, 1, 1, 1, 1,
    ]  # fmt: skip
    assert made.drops == {"bad_value (values)": 2}


@pytest.mark.parametrize("name", MAKERS)
def test_a_period_begins_anew_and_its_late_rows_are_counted(name: str) -> None:
    made = MAKERS[name](60.0)
    rows = [row("x", time=10.0), row("x", time=59.9), row("x", time=60.0), row("x", time=59.0), row("x", "b", 59.0)]
    ends = {"distinct": 1, "moment": 4}[name]
    assert fed(made, *rows) == [1, ends, 1, None, 1]
    assert made.drops == {"late (values)": 1}


def test_one_wrong_clock_begins_no_period_for_the_others() -> None:
    made, now = MAKERS["distinct"](60.0), Now(0.0, 1.7e9 + 10)
    assert fed(made, row("x", time=1.7e9), row("y", time=1.9e9), row("z", time=1.7e9 + 69), now=now)[2] is not None
    assert made.drops == {}


STEPS = st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 9), st.integers(0, 3)), max_size=12)


@pytest.mark.parametrize("period_s", [0.0, 1.0])
@pytest.mark.parametrize("name", MAKERS)
@given(batches=st.lists(STEPS, max_size=5))
def test_deltas_and_snapshots_bring_it_back(
    name: str, period_s: float, batches: list[list[tuple[str, int | None, int]]]
) -> None:
    made, by_deltas, by_snapshot = (MAKERS[name](period_s) for _ in range(3))
    for batch in batches:
        fed(made, *(row(value, source, float(time)) for source, value, time in batch))
        if (delta := made.delta()) is not None:
            by_deltas.restore(unpack(pack(delta)))
        assert made.delta() is None
    if (snapshot := made.snapshot()) is not None:
        by_snapshot.restore(unpack(pack(snapshot)))
    periods = {key: kept.period for key, kept in made.kept.items()}
    for again in (by_deltas, by_snapshot):
        assert {key: kept.period for key, kept in again.kept.items()} == periods
    rest = [row(n, source, 3.0) for n in range(5) for source in "ab"]
    assert fed(by_deltas, *rest) == fed(by_snapshot, *rest) == fed(made, *rest)


def test_what_changes_nothing_makes_no_delta() -> None:
    made = MAKERS["distinct"]()
    fed(made, row("x"))
    assert made.delta() is not None
    fed(made, row("x"), row(None))
    assert made.delta() is None


@pytest.mark.parametrize("name", MAKERS)
def test_keys_are_bounded_by_memory(name: str) -> None:
    assert MAKERS[name]().by_key.most_keys() < 2**25 // 512
    made, again = MAKERS[name](), MAKERS[name]()
    for source in "abca":
        if source == "c":
            limit_to_held(made, again)
        fed(made, row("x", source))
        again.restore(unpack(pack(made.delta())))
    assert list(made.kept) == list(again.kept) == ["c", "a"]
    assert made.drops == {"too many keys (keys)": 2}


@pytest.mark.parametrize(
    ("make", "error", "values"),
    [
        (DistinctCount, 0.26, 4),
        (DistinctCount, 0.0325, 62),
        (DistinctCount, 0.0325, 400),
        (DistinctCount, 0.01, 1_000),
        (Moment, 0.5, 400),
        (Moment, 0.177, 62),
        (Moment, 0.05, 62),
    ],
)
def test_what_keys_take_in_memory_is_what_is_reckoned(make: Callable[..., Sketched], error: float, values: int) -> None:
    made = make("v", "out", ["source"], 0.0, error)
    keys = 30_000 // values
    batches = [[row(1_000 * key + n, f"device-{key}") for n in range(values)] for key in range(keys)]
    fed(made, row(0))
    gc.collect()
    tracemalloc.start()
    try:
        for batch in batches:
            made.process(Batch(batch, 0.0, 1.0), 0, NOW)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        told = made.delta()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert told
    assert 0.5 < held / keys / (MEMORY_BYTES / made.by_key.most_keys()) < 1.02
    assert peak < 2.2 * held, "a checkpoint takes about as much again"


def document(kind: str, **parameters: Any) -> dict[str, Any]:
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "by": {"type": "key_by", "input": "in", "keys": ["room"]},
        "made": {"type": kind, "input": "by", "field": "v", "output": "o", **parameters},
        "brief": {"type": "select", "input": "made", "fields": ["o"]},
        "out": {"type": "publish", "input": "brief", "topic": "y"},
    }
    return {"name": "f", "operators": operators}


@pytest.mark.parametrize("kind", ["distinct_count", "second_moment"])
def test_a_flow_decodes_the_field_and_the_key(kind: str) -> None:
    flow = from_plain(document(kind), REGISTRY)
    assert fields_needed(flow, REGISTRY, "in") == frozenset({"room", "v"})
    for period_s in (0.5, -1):
        with pytest.raises(DocumentError, match="period_s"):
            from_plain(document(kind, period_s=period_s), REGISTRY)


@pytest.mark.parametrize(("make", "error"), [(DistinctCount, 0.0325), (Moment, 0.177)])
def test_a_restart_takes_little_more_memory_than_the_sketches_themselves(
    make: Callable[..., Sketched], error: float
) -> None:
    made, again = (make("v", "out", ["source"], 0.0, error) for _ in range(2))
    keys = 500
    for key in range(keys):
        fed(made, *[row(n % 40 * n, f"key-{key}") for n in range(80)])
    state = pack(made.snapshot())
    gc.collect()
    tracemalloc.start()
    try:
        again.restore(unpack(state))
        gc.collect()
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 200 < held / keys < MEMORY_BYTES / again.by_key.most_keys()
    assert peak - held < held
