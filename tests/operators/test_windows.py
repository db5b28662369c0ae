"""`tumbling_window` against a plain-Python reference, with crashes at any point.

event time   ──0────────10───────20───────▶
watermark         ▲8         ▲12               window [0, 10) leaves at 12
rows              9 in time, 9 late (or a correction, or one more contribution)
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import NO_WATERMARK, Batch, Row
from edgert.core.errors import DocumentError
from edgert.core.packing import pack, unpack
from edgert.core.text.long_text import SHORT, beyond_short
from edgert.flow.document import from_plain
from edgert.operators.base.logic import Emission
from edgert.operators.registry import REGISTRY
from edgert.operators.state.aggregate_calls import Aggregate
from edgert.operators.state.aggregates import Aggregates
from edgert.operators.state.bounded_keys import KEY_BYTES, SLOT_BYTES
from edgert.operators.state.groups import STALE_BYTES, WINDOW_BYTES, Groups
from edgert.operators.windows import CONTRIBUTION, RESULT, TumblingWindow
from tests.operators.bounds import limit
from tests.operators.windows_world import AGGREGATES, NOW, SIZE, at, row, rows_at, window

LONG = "a" * 10 * SHORT


# -- reference


def numbers(rows: list[Row]) -> list[float]:
    values: list[Any] = [r.get("v") for r in rows]
    return [v for v in values if type(v) in (int, float) and math.isfinite(v)]


def reference(rows: list[Row]) -> dict[str, Any]:
    values = numbers(rows)
    return {
        "n": len(rows),
        "some": len(values),
        "total": math.fsum(values),
        "mean_v": math.fsum(values) / len(values) if values else None,
        "var_v": statistics.variance(values) if len(values) > 1 else None,
        "low": min(values, default=None),
        "high": max(values, default=None),
        "named": sum(r.get("text") is not None for r in rows),
    }


def same(got: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        if isinstance(value, float):
            assert got[name] == pytest.approx(value, rel=1e-9, abs=1e-6), name
        else:
            assert got[name] == value, name


def add_up(contributions: list[Row]) -> dict[str, Any]:
    """What the fleet job makes of contributions to one window and key, by its own formulas."""
    n = sum(c["var_v__count"] for c in contributions)
    mean = sum(c["var_v__count"] * c["var_v__mean"] for c in contributions) / n if n else 0.0
    m2 = sum(c["var_v__m2"] + c["var_v__count"] * (c["var_v__mean"] - mean) ** 2 for c in contributions)
    some = sum(c["mean_v__count"] for c in contributions)
    return {
        "n": sum(c["n"] for c in contributions),
        "some": sum(c["some"] for c in contributions),
        "total": sum(c["total"] for c in contributions),
        "mean_v": sum(c["mean_v__sum"] for c in contributions) / some if some else None,
        "var_v": m2 / (n - 1) if n > 1 else None,
        "low": min((c["low"] for c in contributions if c["low"] is not None), default=None),
        "high": max((c["high"] for c in contributions if c["high"] is not None), default=None),
        "named": sum(c["named"] for c in contributions),
    }


@dataclass
class Model:
    """Which rows are in time, by the definition: the window's end plus the lateness is not yet passed."""

    lateness_s: float
    ships: bool
    watermark: float = NO_WATERMARK
    taken: dict[tuple[float, str], list[Row]] = field(default_factory=lambda: defaultdict(list))
    too_late: dict[tuple[float, str], list[Row]] = field(default_factory=lambda: defaultdict(list))

    def add(self, batch: Batch) -> None:
        for r in batch.rows:
            start = r["time"] // SIZE * SIZE
            late = start + SIZE + self.lateness_s <= self.watermark
            (self.too_late if late else self.taken)[start, r["source"]].append(r)
        self.watermark = max(self.watermark, batch.watermark)


# -- properties

VALUES = st.one_of(
    st.none(), st.floats(-1e6, 1e6), st.integers(-1000, 1000), st.booleans(), st.just("21.5"), st.just(math.nan),
    st.just(math.inf),
)  # fmt: skip
ROWS = st.builds(
    lambda time, v, source, text: {"time": time, "source": source, "v": v, **({"text": text} if text else {})},
    st.floats(-15, 60), VALUES, st.sampled_from(["a", "b", LONG]), st.sampled_from(["", "x"]),
)  # fmt: skip
BATCHES = st.lists(
    st.builds(lambda rows, mark: Batch(rows, 0.0, mark), st.lists(ROWS, max_size=6),
              st.one_of(st.just(NO_WATERMARK), st.floats(-10, 50))),
    max_size=12,
)  # fmt: skip


def collect(emissions: Any) -> tuple[dict[tuple[float, str], list[Row]], dict[tuple[float, str], Row]]:
    contributions: dict[tuple[float, str], list[Row]] = defaultdict(list)
    finals: dict[tuple[float, str], Row] = {}
    for r in rows_at(emissions, CONTRIBUTION):
        contributions[r["window_start"], r["source"]].append(r)
    for r in rows_at(emissions, RESULT):
        finals[r["window_start"], r["source"]] = r
    return contributions, finals


@given(BATCHES, st.sampled_from([0.0, 5.0, 25.0]), st.sampled_from(["drop", "ship"]))
def test_contributions_merge_to_the_reference_and_the_last_result_is_final(
    batches: list[Batch], lateness_s: float, late: str
) -> None:
    made = window(lateness_s=lateness_s, late=late)
    model = Model(lateness_s, late == "ship")
    emissions: list[Emission] = []
    for batch in batches:
        emissions += made.process(batch, 0, NOW)
        model.add(batch)
    emissions += made.flush(NOW)
    contributions, finals = collect(emissions)

    shipped = {k: list(v) for k, v in model.taken.items()}
    if late == "ship":
        for key, rows in model.too_late.items():
            shipped.setdefault(key, []).extend(rows)
    assert set(contributions) == set(shipped)
    for key, rows in shipped.items():
        same(add_up(contributions[key]), reference(rows))
    assert set(finals) == set(model.taken)
    for key, rows in model.taken.items():
        same(finals[key], reference(rows))

    counted = sum(map(len, model.too_late.values())) if late == "drop" else 0
    assert made.drops["late"] == counted
    kept = [r for rows in shipped.values() for r in rows]
    bad = sum(r["v"] is not None and not numbers([r]) for r in kept)
    assert made.drops["bad_value (values)"] == bad


STEPS = st.lists(
    st.tuples(st.builds(lambda rows, mark: Batch(rows, 0.0, mark), st.lists(ROWS, max_size=4),
                        st.one_of(st.just(NO_WATERMARK), st.floats(-10, 50))),
              st.sampled_from(["go on", "checkpoint", "compact", "crash"])),
    max_size=14,
)  # fmt: skip


def plain_state(made: TumblingWindow) -> Any:
    state = unpack(pack(made.snapshot()))
    for name in ("windows", "emitted"):
        state[name] = sorted(state[name], key=repr)
    return state


def reckoned(kept: Groups) -> int:
    """Looked at one by one."""
    groups = [(key, acc) for accs in kept.values() for key, acc in accs.items()]
    each = [KEY_BYTES + beyond_short(key) + SLOT_BYTES * len(acc) for key, acc in groups]
    return WINDOW_BYTES * len(kept) + sum(each)


KEYS = [(("source", "string"),), (("source", "string"), ("text", "string")), ()]


@given(STEPS, st.sampled_from([0.0, 25.0]), st.sampled_from(KEYS), st.integers(1, 2))
def test_a_crash_and_replay_gives_what_no_crash_gives(
    steps: list[tuple[Batch, str]], lateness_s: float, keys: Any, inputs: int
) -> None:
    """The blobs are packed only when the next step is done: a delta must not share what goes on changing."""

    def fresh() -> TumblingWindow:
        return window(lateness_s=lateness_s, keys=keys, inputs=inputs)

    steady, shaky = fresh(), fresh()
    blobs: list[bytes] = []
    pending: list[Any] = []
    replay: list[tuple[Batch, int]] = []

    def restored() -> TumblingWindow:
        made = fresh()
        for blob in blobs:
            made.restore(unpack(blob))
        return made

    for number, (batch, action) in enumerate(steps):
        source = number % inputs
        steady.process(batch, source, NOW)
        shaky.process(batch, source, NOW)
        blobs += [pack(d) for d in pending]
        pending.clear()
        replay.append((batch, source))
        if action in ("checkpoint", "compact"):
            delta = shaky.delta()
            pending += [delta] if delta is not None else []
            replay.clear()
        if action == "compact":
            blobs += [pack(d) for d in pending]
            pending.clear()
            blobs[:] = [pack(restored().snapshot())]
        if action == "crash":
            shaky = restored()
            for again, by in replay:
                shaky.process(again, by, NOW)
        assert plain_state(shaky) == plain_state(steady)
        for kept in (steady.windows, steady.emitted, shaky.windows, shaky.emitted):
            assert kept.held_bytes() == reckoned(kept) == sum(map(kept.bytes_of, kept))


# -- single rules


def test_state_stored_before_full_rows_were_counted_together_goes_on() -> None:
    """Its slots lack the last one. A row without `text` is not full, so what is stored here needs that slot for naught.

    The window of 0 was emitted and may be corrected, that of 10 is open.
    """
    before = window(lateness_s=100.0)
    before.process(at(10.0, row(1.0, 2.0), row(11.0, 3.0)), 0, NOW)
    state = unpack(pack(before.snapshot()))
    for entry in (*state["windows"], *state["emitted"]):
        assert entry[2].pop() == 0
    again = window(lateness_s=100.0)
    again.restore(state)
    late, more = row(2.0, 4.0, text=1), row(12.0, 5.0, text=1)
    results = rows_at(again.process(at(20.0, late, more), 0, NOW), RESULT)
    assert [r["time"] for r in results] == [0.0, 10.0]
    same(results[0], reference([row(1.0, 2.0), late]))
    same(results[1], reference([row(11.0, 3.0), more]))


def test_a_window_leaves_when_the_watermark_reaches_its_end_and_not_before() -> None:
    made = window()
    assert made.process(at(9.9, row(1.0), row(9.0)), 0, NOW)[0].batch.rows == []
    out = made.process(at(10.0, row(10.0)), 0, NOW)
    assert [(r["window_start"], r["window_end"], r["n"]) for r in rows_at(out, RESULT)] == [(0.0, 10.0, 2)]
    assert rows_at(made.process(at(NO_WATERMARK), 0, NOW), RESULT) == []


def test_late_row_is_counted_not_lost_silently() -> None:
    made = window()
    made.process(at(12.0, row(1.0)), 0, NOW)
    assert made.process(at(NO_WATERMARK, row(9.0), row(15.0)), 0, NOW) == []
    assert made.drops == {"late": 1}


def test_late_row_within_the_lateness_gives_corrected_finals_and_a_contribution_of_its_own() -> None:
    made = window(lateness_s=5.0)
    made.process(at(12.0, row(1.0, 2.0)), 0, NOW)
    out = made.process(at(NO_WATERMARK, row(9.0, 4.0)), 0, NOW)
    assert [(r["n"], r["mean_v"]) for r in rows_at(out, RESULT)] == [(2, 3.0)]
    assert [(r["n"], r["total"]) for r in rows_at(out, CONTRIBUTION)] == [(1, 4.0)]
    made.process(at(15.0), 0, NOW)
    assert made.process(at(NO_WATERMARK, row(9.0)), 0, NOW) == []
    assert made.drops == {"late": 1}
    assert not made.emitted, "what can no longer be corrected is not kept"


def test_late_row_shipped_is_one_more_contribution_and_no_result() -> None:
    made = window(late="ship")
    made.process(at(12.0, row(1.0)), 0, NOW)
    out = made.process(at(NO_WATERMARK, row(9.0, 4.0)), 0, NOW)
    assert [r["total"] for r in rows_at(out, CONTRIBUTION)] == [4.0]
    assert rows_at(out, RESULT) == []
    assert not made.drops


def test_late_rows_are_not_shipped_where_nothing_ships() -> None:
    made = window(late="ship", ports=frozenset([RESULT]))
    made.process(at(12.0, row(1.0)), 0, NOW)
    assert made.process(at(NO_WATERMARK, row(9.0)), 0, NOW) == []
    assert made.drops == {"late": 1}


def test_no_result_comes_behind_the_watermark_that_its_port_promised() -> None:
    """inner windows of 10 s read by outer ones of 5: at 19 the row of [10, 20) is still to come, with time 10."""
    inner = window()
    outer = TumblingWindow("outer", 5.0, (Aggregate("rows", "count", None),))
    counted = 0
    for batch in (at(9.0, row(1.0)), at(19.0, row(12.0)), at(29.0, row(25.0)), at(41.0)):
        for emission in inner.process(batch, 0, NOW):
            if emission.port == RESULT:
                counted += sum(r["rows"] for r in rows_at(outer.process(emission.batch, 0, NOW), RESULT))
    assert (counted, outer.drops["late"]) == (3, 0)


def test_the_slowest_of_several_inputs_counts() -> None:
    made = window(inputs=2)
    assert rows_at(made.process(at(50.0, row(1.0)), 0, NOW), RESULT) == []
    assert rows_at(made.process(at(9.0), 1, NOW), RESULT) == []
    assert len(rows_at(made.process(at(10.0), 1, NOW), RESULT)) == 1


def test_rows_without_the_key_make_a_group_of_their_own_and_no_key_means_one_group() -> None:
    two = window(keys=(("source", "string"), ("room", "string")))
    out = two.process(at(10.0, row(1.0, room="r"), row(2.0), row(3.0, room="r")), 0, NOW)
    assert [(r["source"], r["room"], r["n"]) for r in rows_at(out, RESULT)] == [("a", "r", 2), ("a", None, 1)]
    one = window(keys=())
    (only,) = rows_at(one.process(at(10.0, row(1.0), row(2.0, source="b")), 0, NOW), RESULT)
    assert (only["source"], only["n"]) == ("minute", 2)


def test_more_groups_than_fit_end_the_oldest_window_early_and_what_is_shipped_merges() -> None:
    made = window(lateness_s=5.0)
    out = list(made.process(at(0.0, row(1.0, 2.0), row(11.0), row(12.0, source="b")), 0, NOW))
    limit(made.windows.held_bytes(), made)
    out += made.process(at(0.0, row(12.0, source="b")), 0, NOW)
    assert not rows_at(out, RESULT)
    out += made.process(at(0.0, row(13.0, source="c")), 0, NOW)
    assert [(r["window_start"], r["total"]) for r in rows_at(out, RESULT)] == [(0.0, 2.0)]
    assert made.drops == {"window ended early (groups)": 1}
    replayed = window(lateness_s=5.0)
    replayed.restore(unpack(pack(made.delta())))
    for each in (made, replayed):
        later = [*each.process(at(12.0, row(2.0, 3.0)), 0, NOW), *each.process(at(40.0), 0, NOW)]
        shipped = [r for r in rows_at([*out, *later], CONTRIBUTION) if r["window_start"] == 0.0]
        assert add_up(shipped)["total"] == 5.0
        assert len([r for r in rows_at(later, RESULT) if r["window_start"] == 10.0]) == 3


def test_what_left_is_not_kept_for_the_next_checkpoint() -> None:
    """Whose delta says the same of it, and of what came again."""
    made, source = window(lateness_s=10.0), "x" * (STALE_BYTES // 20)
    for number in range(100):
        made.process(at(number * SIZE, row(number * SIZE, source=source), row(number * SIZE - 5.0)), 0, NOW)
        assert made.windows.held_bytes() < STALE_BYTES
        assert len(made.windows.dirty) < 60 > len(made.emitted.dirty)
    again = window(lateness_s=10.0)
    again.restore(unpack(pack(made.delta())))
    assert plain_state(again) == plain_state(made)


def test_partials_stand_in_the_columns_that_the_wire_format_names() -> None:
    from edgert.core.results.result_schema import Schema, row_columns

    schema = Schema(SIZE, (("source", "string"),), tuple((a.name, a.function) for a in AGGREGATES))
    (got,) = rows_at(window().process(at(10.0, row(1.0)), 0, NOW), CONTRIBUTION)
    assert set(row_columns(schema)) == set(got) - {"time"}
    partial = Aggregates(AGGREGATES).partial(Aggregates(AGGREGATES).initial())
    assert tuple(partial) == row_columns(schema)[3:]


@pytest.mark.parametrize(
    ("keys", "aggregates", "path"),
    [
        (["source"], {"n": "count()", "N": "sum(v)"}, "aggregates"),
        (["room", "Room"], {"n": "count()"}, "aggregates"),
        (["t__count"], {"t": "mean(v)"}, "aggregates"),
        (["n"], {"n": "count()"}, "aggregates.n"),
        (["epoch"], {"n": "count()"}, ""),
    ],
)
def test_names_that_no_table_can_hold_are_refused_with_their_path(
    keys: list[str], aggregates: dict[str, str], path: str
) -> None:
    document = {
        "name": "f",
        "operators": {
            "in": {"type": "mqtt_source", "topic": "a/{source}"},
            "by": {"type": "key_by", "input": "in", "keys": keys},
            "minute": {"type": "tumbling_window", "input": "by", "size_s": 60, "aggregates": aggregates},
            "out": {"type": "ship", "input": "minute"},
        },
    }
    with pytest.raises(DocumentError) as refused:
        from_plain(document, REGISTRY)
    assert [p.path for p in refused.value.problems] == [".".join(filter(None, ["operators.minute", path]))]


def test_what_changed_is_told_again_where_it_could_not_be_packed() -> None:
    """A key that is no Unicode comes from operators of other packages only."""
    made = TumblingWindow("w", SIZE, (Aggregate("rows", "count", None),), (("source", "string"),))
    for source in ("good", "\ud800"):
        made.process(Batch([{"time": 1.0, "source": source}], 0.0, 1.0), 0, NOW)
    for _ in range(2):
        with pytest.raises(UnicodeEncodeError):
            made.delta()
