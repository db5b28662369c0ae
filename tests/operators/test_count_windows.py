"""`count_window`: every n rows of a key."""

from __future__ import annotations

import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import Batch
from edgert.core.packing import pack, unpack
from edgert.operators.base.logic import Now
from edgert.operators.count_windows import CountWindow
from edgert.operators.state.aggregate_calls import parse_aggregate
from tests.operators.bounds import limit, limit_to_held

NOW = Now(0.0, 0.0)
AGGREGATES = [parse_aggregate("m", "mean(v)"), parse_aggregate("n", "count()"), parse_aggregate("var", "variance(v)")]


def window(size: int = 3, *keys: str) -> CountWindow:
    return CountWindow(size, AGGREGATES, [(key, "string") for key in keys or ("source",)])


def fed(made: CountWindow, rows: list[dict[str, Any]], watermark: float = 5.0) -> list[dict[str, Any]]:
    (emission,) = made.process(Batch(rows, 0.0, watermark), 0, NOW)
    assert emission.batch.watermark == watermark
    return emission.batch.rows


def row(source: str, time: float, v: object = 1.0, **more: Any) -> dict[str, Any]:
    return {"time": time, "source": source, "v": v, **more}


def test_every_n_rows_of_a_key_give_one_with_the_time_of_the_last() -> None:
    made = window()
    rows = [row("a", 1, 1.0), row("b", 2, 9.0), row("a", 3, 2.0), row("a", 4, 6.0), row("a", 5, 7.0)]
    assert fed(made, rows) == [{"time": 4, "source": "a", "m": 3.0, "n": 3, "var": 7.0}]
    assert fed(made, [row("a", 6), row("a", 7)])[0]["n"] == 3
    assert fed(made, []) == []


def test_a_bad_value_counts_as_a_row_and_nothing_else() -> None:
    made = window(2)
    assert fed(made, [row("a", 1, "warm"), row("a", 2, 4.0)])[0] | {"time": 0} == {
        "time": 0, "source": "a", "m": 4.0, "n": 2, "var": None,
    }  # fmt: skip
    assert made.drops == {"bad_value (values)": 1}


def test_several_keys_and_absent_ones() -> None:
    made = window(2, "source", "room")
    out = fed(made, [row("a", 1, room="x"), row("a", 2), row("a", 3, room="x"), row("a", 4)])
    assert [(r["time"], r["room"]) for r in out] == [(3, "x"), (4, None)]


def test_of_more_open_windows_than_the_bound_the_oldest_is_forgotten_and_its_rows_are_counted() -> None:
    made, by_deltas = window(3), window(3)
    batches = [[row("a", 1), row("a", 2), row("b", 3)], [row("c", 4)], [row("b", 5), row("b", 6), row("d", 7)]]
    for batch in batches:
        out = fed(made, batch)
        if batch is batches[0]:
            limit_to_held(made, by_deltas)
        by_deltas.restore(unpack(pack(made.delta())))
    assert [r["source"] for r in out] == ["b"], "which was complete before a window too many was there"
    assert made.open.keys() == by_deltas.open.keys() == {"c", "d"}
    assert made.drops == {"too many keys (keys)": 1, "incomplete window": 2}
    made.flush(NOW)
    rows = sum(map(len, batches))
    assert rows == 3 * len(out) + made.drops["incomplete window"], "every row is in a result or counted"


def test_windows_of_many_aggregates_keep_to_the_memory_too() -> None:
    memory_bytes = 2_000_000
    fields = [f"v{n}" for n in range(25)]
    wanted = [
        parse_aggregate(f"{f}_{name}", f"{name}({f})") for f in fields for name in ("mean", "variance", "min", "max")
    ]
    few, many = window(), CountWindow(3, wanted, [("source", "string")])
    limit(memory_bytes, few, many)
    tracemalloc.start()
    for n in range(600):
        fed(many, [row(f"s{n}", 1, **{f: at + n + more for at, f in enumerate(fields)}) for more in (0.5, 1.5)])
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert many.drops["too many keys (keys)"] > 0
    assert 0.4 * memory_bytes < held_bytes < memory_bytes
    fed(few, [row(f"s{n}", 1) for n in range(2_000)])
    assert not few.drops, "a few take little"


def test_long_keys_count_in_the_first_row_of_a_window() -> None:
    made = window()
    limit(1_000_000, made)
    fed(made, [row("x" * 10_000 + str(n), 1) for n in range(200)])
    assert 50 < len(made.open) < 100


def test_a_checkpoint_with_more_windows_than_the_bound_is_taken_and_cut() -> None:
    many, made = window(3), window(3)
    fed(made, [row("a", 1), row("b", 1)])
    limit_to_held(made)
    many.restore({"gone": ["x"], "open": [[key, [*many.aggregates.initial()[1:], 0]] for key in "abcd"]})
    made.restore(unpack(pack(many.snapshot())))
    assert len(made.open) == 4
    fed(made, [row("d", 1)])
    assert list(made.open) == ["c", "d"]
    assert made.drops["too many keys (keys)"] == 2


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9).map(float)), max_size=8)


@given(st.lists(STEPS, max_size=8), st.integers(1, 4))
def test_deltas_and_snapshots_bring_it_back(batches: list[list[tuple[str, float]]], size: int) -> None:
    made, by_deltas = window(size), window(size)
    for n, batch in enumerate(batches):
        made.process(Batch([row(source, n, v) for source, v in batch], 0.0), 0, NOW)
        delta = made.delta()
        if delta is not None:
            by_deltas.restore(unpack(pack(delta)))
    by_snapshot = window(size)
    if (snapshot := made.snapshot()) is not None:
        by_snapshot.restore(unpack(pack(snapshot)))
    rest = [row(source, 99, 1.0) for source in "abc" * size]
    expected = fed(made, rest)
    assert fed(by_deltas, rest) == expected
    assert fed(by_snapshot, rest) == expected
    assert len(expected) == 3
