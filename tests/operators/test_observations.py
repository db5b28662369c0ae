"""`join_observations`: single fields become rows again."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import NO_WATERMARK, Batch
from edgert.core.errors import DocumentError
from edgert.core.packing import pack, unpack
from edgert.flow.document import from_plain
from edgert.flow.physical import fields_needed
from edgert.operators.base.logic import Now
from edgert.operators.observations import JoinObservations
from edgert.operators.registry import REGISTRY
from tests.operators.bounds import limit

NOW = Now(0.0, 0.0)


def joins(*, on: list[str] | None = None, **parameters: Any) -> JoinObservations:
    return JoinObservations(on or ["source"], ["t", "h"], **parameters)


def row(time: float, source: str = "a", **fields: Any) -> dict[str, Any]:
    return {"time": time, "source": source, **fields}


def fed(
    made: JoinObservations, *rows: dict[str, Any], source: int = 0, watermark: float = NO_WATERMARK
) -> list[dict[str, Any]]:
    out = made.process(Batch(list(rows), 0.0, watermark, 100), source, NOW)
    return [r for emission in out for r in emission.batch.rows]


def test_fields_of_one_key_and_time_become_one_row() -> None:
    made = joins()
    first = row(1, t=20, room="x")
    assert fed(made, first, row(1, "b", t=5), row(2, h=50)) == []
    assert fed(made, row(1, h=40, floor=2)) == [row(1, t=20, h=40, room="x", floor=2)]
    assert fed(made, row(2, t=21), row(1, "b", h=6)) == [row(2, t=21, h=50), row(1, "b", t=5, h=6)]
    assert fed(made, row(9, t=1, h=2)) == [row(9, t=1, h=2)], "nothing to wait for"
    assert first == row(1, t=20, room="x"), "rows are shared"
    assert not made.drops
    assert not made.open


def test_null_is_no_value() -> None:
    made = joins()
    assert fed(made, row(1, t=None, h=1), row(1, t=None)) == []
    assert fed(made, row(1, t=3, h=None)) == [row(1, t=3, h=1)]


def test_when_the_time_is_out_what_came_leaves_and_is_counted() -> None:
    made = joins(timeout_s=10.0)
    fed(made, row(1, t=1), row(5, h=5), watermark=10.9)
    assert fed(made, watermark=11) == [row(1, t=1, h=None)]
    assert fed(made, row(5, t=6)) == [row(5, t=6, h=5)]
    assert made.drops == {"absent (values)": 1}
    assert fed(made, row(0.5, t=1)) == [row(0.5, t=1, h=None)], "too late to wait for anything"


def test_what_is_incomplete_can_be_dropped() -> None:
    made = joins(timeout_s=10.0, incomplete="drop")
    fed(made, row(1, t=1), row(2, t=1))
    assert fed(made, watermark=12.0) == []
    assert made.drops == {"incomplete (observations)": 2}


def test_of_a_field_that_comes_twice_the_newer_value_counts() -> None:
    made = joins()
    fed(made, row(1, t=1), row(1, t=2), row(1, room="x"), row(1, room="y"))
    assert fed(made, row(1, h=3)) == [row(1, t=2, h=3, room="y")]
    assert made.drops == {"repeated (values)": 1}


def test_what_waited_longest_goes_when_too_many_wait() -> None:
    made = joins(max_open=2)
    assert fed(made, row(9, t=9), row(1, t=1)) == []
    assert fed(made, row(3, t=3)) == [row(9, t=9, h=None)]
    assert made.drops == {"too many open (observations)": 1, "absent (values)": 1}
    assert list(made.open) == [(1, "a"), (3, "a")]


@pytest.mark.parametrize("long", [{"source": "x" * 10_000}, {"t": "x" * 10_000}, {"other": [["x" * 1_000] * 10]}])
def test_what_waits_is_bounded_by_memory_also_after_a_restart(long: dict[str, Any]) -> None:
    def came(n: int) -> dict[str, Any]:
        return {**row(n, f"s{n}", t=1), **long}

    made, again = joins(), joins()
    limit(300_000, made, again)
    for n in range(100):
        fed(made, came(n))
        again.restore(unpack(pack(made.delta())))
    again.restore(unpack(pack(made.snapshot())))
    assert 10 < len(made.open) < 30
    assert made.drops["too many open (observations)"] == 100 - len(made.open)
    assert again.open == made.open
    for n in range(100, 150):
        fed(again, came(n))
    assert len(again.open) == len(made.open)
    assert again.drops["too many open (observations)"] == 50
    for n in range(150, 350):
        fed(again, row(n, t=1))
    assert len(again.open) > 200, "what is gone has made room"


def test_what_grows_while_it_waits_is_bounded_too() -> None:
    made = joins()
    limit(300_000, made)
    fed(made, *(row(n, t=1) for n in range(100)))
    out = [gone for n in range(100) for gone in fed(made, row(n, t="x" * 10_000))]
    assert made.drops["too many open (observations)"] == len(out) > 60
    assert out == [row(n, t="x" * 10_000, h=None) for n in range(len(out))]


@pytest.mark.parametrize("more", [0, 2, 8, 40])
def test_the_bound_is_what_rows_take_however_wide_they_are(more: int) -> None:
    memory_bytes = 2_000_000
    names = [f"more{n}" for n in range(more)]
    made, again = joins(max_open=1_000_000), joins(max_open=1_000_000)
    limit(memory_bytes, made, again)
    tracemalloc.start()
    for n in range(6_000):
        first, then = ({name: n + at + 0.5 for at, name in enumerate(part)} for part in (names[: more // 2], names))
        fed(made, row(n, f"sensor-{n}", t=n + 0.5, **first), row(n, f"sensor-{n}", **then))
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made.drops["too many open (observations)"] == 6_000 - len(made.open) > 0
    assert 0.6 * memory_bytes < held_bytes < memory_bytes
    again.restore(unpack(pack(made.delta())))
    again.restore(unpack(pack(made.snapshot())))
    assert again.bounded.most_keys() == made.bounded.most_keys()
    for one in (made, again):
        for at in list(one.open):
            fed(one, row(at[0], at[1], h=1))
        assert one.bounded.beyond_bytes == 0, "what is gone takes nothing"


def test_long_keys_that_were_complete_are_not_held_for_their_time() -> None:
    made = joins()
    for n in range(40):
        source = f"{n}" + "x" * 1_000_000
        fed(made, row(1, source, t=1), row(1, source, h=1))
    assert len(made.by_time) < 16


def test_the_slowest_input_tells_the_time_and_nothing_leaves_behind_the_watermark() -> None:
    made = joins(timeout_s=10.0, inputs=2)
    assert not made.process(Batch([row(4, t=1)], 0.0, 50.0), 0, NOW)
    (emission,) = made.process(Batch([], 0.0, 13.0), 1, NOW)
    assert (emission.batch.rows, emission.batch.watermark) == ([], 3.0)
    (emission,) = made.process(Batch([row(4, h=1)], 0.0, 13.0, 60), 1, NOW)
    assert (emission.batch.rows, emission.batch.watermark, emission.batch.size) == ([row(4, t=1, h=1)], 3.0, 60)
    assert not made.process(Batch([], 0.0, 13.0), 1, NOW)


def test_at_the_end_of_the_flow_all_leave() -> None:
    made = joins()
    fed(made, row(1, t=1), row(2, h=2))
    (emission,) = made.flush(NOW)
    assert emission.batch.rows == [row(1, t=1, h=None), row(2, t=None, h=2)]
    assert not made.flush(NOW)


def test_many_that_are_soon_complete_leave_nothing_behind() -> None:
    made = joins()
    for time in range(1_000):
        fed(made, row(time, t=1), row(time, h=1))
    assert len(made.by_time) < 100
    assert made.delta() is None, "what came and went between two checkpoints is nothing to them"


def test_keys_of_several_fields() -> None:
    made = joins(on=["source", "room"])
    fed(made, row(1, t=1, room="x"), row(1, h=1), row(1, h=2, room="y"))
    assert fed(made, row(1, h=3, room="x")) == [row(1, t=1, h=3, room="x")]


STEP = st.tuples(
    st.sampled_from("ab"), st.integers(0, 5).map(float), st.sampled_from(["t", "h", "u"]), st.integers(0, 3)
)
BATCHES = st.lists(st.tuples(st.lists(STEP, max_size=8), st.integers(0, 9).map(float)), max_size=6)


@given(BATCHES)
def test_it_does_what_a_plain_loop_does(batches: list[tuple[list[tuple[str, float, str, int]], float]]) -> None:
    made = joins(timeout_s=2.0)
    waiting: dict[tuple[float, str], dict[str, Any]] = {}
    newest = -math.inf
    for steps, watermark in batches:
        expected = []
        for source, time, field, value in steps:
            kept = waiting.setdefault((time, source), row(time, source, t=None, h=None))
            kept[field] = value
            if kept["t"] is not None and kept["h"] is not None:
                expected.append(waiting.pop((time, source)))
        newest = max(newest, watermark)
        expected += [waiting.pop(at) for at in sorted(waiting, key=lambda at: at[0]) if at[0] + 2 <= newest]
        got = fed(
            made, *(row(time, source, **{field: value}) for source, time, field, value in steps), watermark=watermark
        )
        assert in_order(got) == in_order(expected)
    assert made.open == waiting


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those whose time is out at once leave in any order."""
    return sorted(rows, key=lambda r: (r["time"], r["source"], str(r)))


@given(BATCHES)
def test_deltas_and_snapshots_bring_it_back(batches: list[tuple[list[tuple[str, float, str, int]], float]]) -> None:
    made, by_deltas, by_snapshot = (joins(timeout_s=2.0, on=["source", "u"]) for _ in range(3))
    for at, (steps, watermark) in enumerate(batches):
        fed(made, *(row(time, source, **{field: value}) for source, time, field, value in steps), watermark=watermark)
        if at % 2 and (delta := made.delta()) is not None:
            by_deltas.restore(unpack(pack(delta)))
    if (delta := made.delta()) is not None:
        by_deltas.restore(unpack(pack(delta)))
    if (snapshot := made.snapshot()) is not None:
        by_snapshot.restore(unpack(pack(snapshot)))
    assert by_deltas.open == by_snapshot.open == made.open
    waited = sorted(map(str, made.open))
    ends = [fed(again, row(0.5, t=1), row(0.5, h=1), watermark=100.0) for again in (made, by_deltas, by_snapshot)]
    assert in_order(ends[0]) == in_order(ends[1]) == in_order(ends[2])
    last = made.delta()
    assert sorted(map(str, last["gone"] if last else [])) == waited, "what had been told is taken back"


@pytest.mark.parametrize("told", ["delta", "snapshot"])
def test_what_is_restored_knows_how_late_it_is(told: str) -> None:
    """An input does not repeat a watermark that did not change."""

    def lived(restored: bool) -> tuple[list[dict[str, Any]], dict[str, int]]:
        made = joins(timeout_s=3.0, inputs=2)
        out = fed(made, row(99.0, t=1), watermark=100.0) + fed(made, source=1, watermark=100.0)
        if restored:
            state, made = unpack(pack(getattr(made, told)())), joins(timeout_s=3.0, inputs=2)
            made.restore(state)
            assert made.delta() is None
        out += fed(made, row(50.0, t=2), watermark=101.0) + fed(made, row(50.0, h=3), watermark=102.0)
        return out + fed(made, source=1, watermark=200.0) + fed(made, watermark=200.0), dict(made.drops)

    assert lived(restored=True) == lived(restored=False)


def test_a_watermark_alone_is_told() -> None:
    made = joins()
    fed(made, watermark=5.0)
    assert made.delta() == {"gone": [], "open": [], "marks": [5.0], "watermark": 5.0}
    assert made.delta() is None


def test_state_of_before_the_watermarks_were_kept_is_taken() -> None:
    made = joins()
    made.restore({"gone": [], "open": [[1.0, "a", {"time": 1.0, "source": "a", "t": 1}]]})
    assert made.delta() is None
    assert fed(made, row(1.0, h=2), watermark=5.0) == [row(1.0, t=1, h=2)]


def document(**parameters: Any) -> dict[str, Any]:
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "one": {"type": "select", "input": "in", "fields": ["t", "room"]},
        "two": {"type": "select", "input": "in", "fields": ["h", "room"]},
        "j": {"type": "join_observations", "inputs": ["one", "two"], "fields": ["t", "h"], **parameters},
        "brief": {"type": "select", "input": "j", "fields": ["t"]},
        "out": {"type": "publish", "input": "brief", "topic": "y"},
    }
    return {"name": "f", "operators": operators}


def test_a_flow_decodes_what_must_be_equal_and_what_is_wanted() -> None:
    flow = from_plain(document(on=["source", "room"]), REGISTRY)
    assert fields_needed(flow, REGISTRY, "in") == frozenset({"t", "h", "room"})


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"fields": ["t"]}, "fields"),
        ({"fields": ["t", "time"]}, "fields[1]"),
        ({"on": ["h"]}, "fields"),
        ({"max_open": 0}, "max_open"),
    ],
)
def test_what_cannot_work_is_refused_with_its_place(parameters: dict[str, Any], path: str) -> None:
    with pytest.raises(DocumentError) as refused:
        from_plain(document(**parameters), REGISTRY)
    assert [p.path for p in refused.value.problems] == [f"operators.j.{path}"]


def test_what_was_restored_and_left_since_is_taken_back() -> None:
    made, again = joins(), joins()
    fed(made, row(1, t=1))
    again.restore(made.delta())
    assert again.delta() is None
    fed(again, row(1, h=1))
    assert again.delta()["gone"] == [(1, "a")]  # type: ignore[index]
