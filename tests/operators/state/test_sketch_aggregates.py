"""Windows with sketches: what they tell, merge, ship and bring back from a checkpoint."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import Batch, Row
from edgert.core.packing import pack, unpack
from edgert.core.results.result_schema import Schema, row_columns
from edgert.operators.base.logic import Now
from edgert.operators.count_windows import CountWindow
from edgert.operators.state import aggregate_calls
from edgert.operators.state.aggregate_calls import parse_aggregate
from edgert.operators.state.sketch_kinds import KINDS
from edgert.operators.windows import CONTRIBUTION, EARLY, RESULT, TumblingWindow

WRITTEN = {"kinds": "distinct(v)", "members": "distinct_set(v)", "spread": "quantiles(v)", "m": "mean(v)"}
AGGREGATES = tuple(parse_aggregate(name, text) for name, text in WRITTEN.items())
NOW = Now(0.0, 0.0)
KEYS = (("source", "string"),)


def window(**options: Any) -> TumblingWindow:
    return TumblingWindow("w", 10.0, AGGREGATES, KEYS, **options)


def rows(values: Any, time: float = 1.0, source: str = "a") -> list[Row]:
    return [{"time": time, "source": source, "v": v} for v in values]


def fed(made: TumblingWindow, some: list[Row], watermark: float, port: int) -> list[Row]:
    out = made.process(Batch(some, 0.0, watermark), 0, NOW)
    return [row for emission in out if emission.port == port for row in emission.batch.rows]


def delta(made: TumblingWindow) -> Any:
    return made.delta()


def rank_of(value: float, values: list[float]) -> float:
    return sum(v <= value for v in values) / len(values)


def united(contributions: list[Row]) -> dict[str, Any]:
    """What merging the shipped bytes gives, by the library alone."""
    told: dict[str, Any] = {}
    for name, suffix in (("kinds", "hll"), ("members", "theta"), ("spread", "kll")):
        kind = KINDS[suffix]
        whole = None
        for packed in (c[f"{name}__{suffix}"] for c in contributions):
            if packed is not None:
                whole = kind.unpack(packed) if whole is None else kind.merge(whole, kind.unpack(packed))
        told |= {name + end: value for end, value in kind.results(whole).items()}
    return told


def test_a_result_has_estimates_and_a_contribution_the_sketches() -> None:
    made = window()
    (result,) = fed(made, rows([1, 1.0, 2, 3.5]), 10.0, RESULT)
    wanted = {"kinds": 3, "members": 3, "spread__p05": 1.0, "spread__p50": 1.0, "spread__p95": 3.5, "m": 1.875}
    assert {name: result[name] for name in wanted} == wanted
    columns = {"time", "source", "window_start", "window_end", *wanted}
    assert set(result) == columns
    (shipped,) = fed(window(), rows([1, 1.0, 2, 3.5]), 10.0, CONTRIBUTION)
    schema = Schema(10.0, KEYS, tuple((a.name, a.function) for a in AGGREGATES))
    assert set(shipped) - {"time"} == set(row_columns(schema))
    assert united([shipped]) == {name: value for name, value in wanted.items() if name != "m"}


def test_a_group_without_a_value_ships_null_and_tells_zero_or_null() -> None:
    for some in (rows([None, None]), [{"time": 1.0, "source": "a"}]):
        (result,) = fed(window(), some, 10.0, RESULT)
        assert (result["kinds"], result["members"], result["spread__p50"]) == (0, 0, None)
        (shipped,) = fed(window(), some, 10.0, CONTRIBUTION)
        assert (shipped["kinds__hll"], shipped["members__theta"], shipped["spread__kll"]) == (None, None, None)


def test_text_and_truth_values_are_different_values_and_no_numbers() -> None:
    made = window()
    mixed = rows(["a", "b", "a", True, 1, "1", 2**70, -0.0, 0])
    (result,) = fed(made, mixed, 10.0, RESULT)
    assert (result["kinds"], result["members"], result["spread__p95"]) == (6, 6, 2.0**70)
    assert made.drops == {"bad_value (values)": 5}, "the mean's and the quantiles'"


@pytest.mark.parametrize("value", [math.nan, [1], {}, "\ud800", 10**400], ids="{!r:.6}".format)
def test_what_is_no_value_is_counted_and_costs_nothing_else(value: object) -> None:
    made = TumblingWindow("w", 10.0, [parse_aggregate("kinds", "distinct(v)")], KEYS)
    (result,) = fed(made, rows(["a", value, "b"]), 10.0, RESULT)
    assert result["kinds"] == 2
    assert made.drops == {"bad_value (values)": 1}


def test_estimates_of_many_values_are_within_their_errors() -> None:
    values = [(i * 7919) % 50_000 / 7 for i in range(50_000)]
    (result,) = fed(window(), rows(values), 10.0, RESULT)
    for name in ("kinds", "members"):
        assert result[name] == pytest.approx(50_000, rel=5 * 0.0163)
    for suffix, rank in (("p05", 0.05), ("p50", 0.5), ("p95", 0.95)):
        assert rank_of(result[f"spread__{suffix}"], values) == pytest.approx(rank, abs=0.03)


# The sketches hash 64 bits, whatever these are of: the integer 1 and the least float above 0 are one value to them.
VALUES = st.lists(st.integers(0, 30) | st.floats(-5, 5, allow_subnormal=False), max_size=30)


@given(st.lists(st.tuples(VALUES, st.booleans()), min_size=1, max_size=6), st.booleans())
def test_contributions_and_results_hold_all_whatever_was_late_and_restored(
    parts: list[tuple[list[float], bool]], whole_state: bool
) -> None:
    """The second part and those after it come when the window was emitted; after some the operator is brought back from
    what it told checkpoints. So few values are exact in all three kinds of sketch."""
    made = window(lateness_s=1000.0)
    states = []
    shipped: list[Row] = []
    results: list[Row] = []
    for values, crashes in parts:
        out = list(made.process(Batch(rows(values), 0.0, -math.inf), 0, NOW))
        if told := made.delta():
            states.append(unpack(pack(told)))
        if crashes:
            states = [unpack(pack(made.snapshot()))] if whole_state else states
            made = window(lateness_s=1000.0)
            for state in states:
                made.restore(state)
        out += made.process(Batch([], 0.0, 10.0), 0, NOW)
        shipped += [r for e in out if e.port == CONTRIBUTION for r in e.batch.rows]
        results += [r for e in out if e.port == RESULT for r in e.batch.rows]
    values = [v for part, _ in parts for v in part]
    if not values:
        assert shipped == []
        return
    told = united(shipped)
    assert {name: results[-1][name] for name in told} == told
    assert told["kinds"] == told["members"] == len(set(values))
    assert told["spread__p50"] == sorted(values)[math.ceil(len(values) / 2) - 1]


def test_a_delta_tells_only_the_groups_that_changed() -> None:
    made = window()
    for source in "abcdef":
        fed(made, rows([1.0, 2.0], source=source), 0.0, RESULT)
    assert len(delta(made)["windows"]) == 6
    fed(made, rows([3.0], source="c"), 0.0, RESULT)
    ((_, key, slots),) = delta(made)["windows"]
    assert key == "c"
    assert [type(slot) for slot in slots[:3]] == [bytes, bytes, bytes]


def test_sketches_that_take_too_much_memory_end_the_oldest_window_early() -> None:
    """What is shipped merges, so nothing is lost by it."""
    made = window()
    fed(made, [*rows(range(500)), *rows(range(400), 11.0), *rows(range(300), 11.0, "b")], 0.0, RESULT)
    groups = [acc for accs in made.windows.values() for acc in accs.values()]
    held = [made.aggregates.sketch_bytes([acc]) for acc in groups]
    assert made.aggregates.sketch_bytes(groups) == sum(held) > 3 * 5_000
    made.aggregates.sketch_limit_bytes = sum(held[1:]) + 1_000
    assert fed(made, [], 1.0, RESULT) == [], "it was measured since the last checkpoint"
    made.delta()
    out = made.process(Batch(rows([9.5], 11.0), 0.0, 2.0), 0, NOW)
    (result,) = [r for e in out if e.port == RESULT for r in e.batch.rows]
    assert (result["window_start"], result["kinds"], made.drops) == (0.0, 500, {EARLY: 1})
    made.delta()
    assert fed(made, [], 3.0, RESULT) == [], "what is left has room"
    shipped = [r for e in out if e.port == CONTRIBUTION for r in e.batch.rows]
    shipped += fed(made, rows(range(490, 510)), 30.0, CONTRIBUTION)
    assert united([r for r in shipped if r["window_start"] == 0.0])["kinds"] == pytest.approx(510, abs=3)


def test_count_windows_whose_sketches_take_too_much_memory_go_the_oldest_first() -> None:
    made = CountWindow(1000, AGGREGATES, KEYS)
    for source in "abcd":
        made.process(Batch(rows(range(300), source=source), 0.0, 0.0), 0, NOW)
    made.aggregates.sketch_limit_bytes = made.aggregates.sketch_bytes(made.open.values()) // 2
    made.delta()
    made.process(Batch(rows([1.0], source="d"), 0.0, 0.0), 0, NOW)
    assert list(made.open) in (["c", "d"], ["d"])
    assert made.drops["incomplete window"] == 300 * (4 - len(made.open))


@given(VALUES, VALUES)
def test_a_count_window_goes_on_where_it_was(before: list[float], after: list[float]) -> None:
    def fresh() -> CountWindow:
        return CountWindow(len(before) + len(after) or 1, AGGREGATES, KEYS)

    made = fresh()
    made.process(Batch(rows(before), 0.0, 0.0), 0, NOW)
    state, made = made.delta(), fresh()
    if state:
        made.restore(unpack(pack(state)))
    out = made.process(Batch(rows(after), 0.0, 0.0), 0, NOW)
    told = [row for emission in out for row in emission.batch.rows]
    if after:
        assert [row["kinds"] for row in told] == [len(set(before + after))]


def test_without_the_package_the_flow_is_refused_and_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate_calls, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install '.*\[sketches\]'"):
        parse_aggregate("kinds", "distinct(v)")
    assert parse_aggregate("n", "count(v)").function == "count"
