"""`train_regression`: against the textbook, its models in use, and its state."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from fractions import Fraction
from operator import mul
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import Batch
from edgert.core.errors import DocumentError
from edgert.core.packing import pack, unpack
from edgert.expr.compile import compile_expression
from edgert.flow.document import from_plain
from edgert.flow.physical import fields_needed
from edgert.operators.base.logic import Now
from edgert.operators.models.models import model_untrusted
from edgert.operators.models.training import MAX_KEYS, Sums, TrainRegression, adder, fit
from edgert.operators.registry import REGISTRY
from edgert.operators.state.bounded_keys import PORTIONS

NOW = Now(0.0, 0.0)
NUMBERS = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))


def row(source: str = "a", time: float = 1.0, **fields: Any) -> dict[str, Any]:
    return {"time": time, "source": source, **fields}


def fed(made: TrainRegression, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    return [r for emission in made.process(Batch(list(rows), 0.0), 0, NOW) for r in emission.batch.rows]


def sums_of(rows: Sequence[tuple[float, ...]]) -> Sums:
    made = Sums(len(rows[0]))
    for values in rows:
        assert adder(made.size)(made.slots, values)
    return made


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=30).filter(lambda rows: len({x for x, _ in rows}) > 1)
)
def test_of_one_field_it_is_the_line_of_least_squares(rows: list[tuple[float, float]]) -> None:
    intercept, (slope,), error = fit(sums_of(rows))
    expected = statistics.linear_regression(*zip(*rows, strict=True))
    spread = math.sqrt(statistics.pvariance([x for x, _ in rows]))
    near = 1e-6 * (1 + 1e3 / spread)
    assert slope == pytest.approx(expected.slope, rel=1e-6, abs=near)
    assert intercept == pytest.approx(expected.intercept, rel=1e-6, abs=1e3 * near)
    left = [y - expected.slope * x - expected.intercept for x, y in rows]
    assert error == pytest.approx(math.sqrt(statistics.fmean([d * d for d in left])), rel=1e-4, abs=1e-3)


def test_of_several_fields_it_finds_what_made_the_values() -> None:
    draw = random.Random(1)
    true = (7.0, [2.0, -0.5, 0.001])
    rows: list[tuple[float, ...]] = []
    for _ in range(500):
        x = (draw.uniform(-10, 40), draw.uniform(0, 100), 1e6 + draw.uniform(0, 9000))
        rows.append((*x, true[0] + sum(c * v for c, v in zip(true[1], x, strict=True)) + draw.gauss(0, 0.1)))
    intercept, coefficients, error = fit(sums_of(rows))
    assert coefficients == pytest.approx(true[1], rel=0.05)
    assert error == pytest.approx(0.1, rel=0.15)
    # least squares: what is left has nothing to do with any field, nor with the constant
    left = [row[3] - intercept - sum(c * v for c, v in zip(coefficients, row, strict=False)) for row in rows]
    assert statistics.fmean(left) == pytest.approx(0.0, abs=1e-6)
    for at in range(3):
        assert abs(statistics.correlation([row[at] for row in rows], left)) < 1e-6


@pytest.mark.parametrize("third", [lambda x, y: 5.1, lambda x, y: x, lambda x, y: 2 * x - 3 * y + 1e6])
def test_a_field_that_tells_nothing_new_gets_nothing(third: Any) -> None:
    draw = random.Random(2)
    pairs = [(draw.uniform(0, 9), draw.uniform(0, 9)) for _ in range(50)]
    rows = [(x, y, third(x, y), 1 + 2 * x + 3 * y) for x, y in pairs]
    intercept, coefficients, error = fit(sums_of(rows))
    assert coefficients == pytest.approx([2, 3, 0], abs=1e-6)
    assert (intercept, error) == pytest.approx((1, 0), abs=1e-4)


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6, 0.0])
def test_the_error_of_a_good_fit_is_never_told_as_less_than_it_is(noise: float) -> None:
    draw = random.Random(3)
    xs = [draw.gauss(0, 1000) for _ in range(500)]
    rows = [(x, 2 * x + draw.gauss(0, noise)) for x in xs]
    _, _, error = fit(sums_of(rows))
    slope, intercept = statistics.linear_regression(*zip(*rows, strict=True))
    true = math.sqrt(statistics.fmean([(y - slope * x - intercept) ** 2 for x, y in rows]))
    assert 0.999 * true <= error < max(1.001 * true, 3e-7 * 2000)


@pytest.mark.parametrize("far", [0, 1, 9_999])
def test_one_row_that_is_far_from_all_others_spoils_nothing_wherever_it_comes(far: int) -> None:
    """Two meters that have counted for long, and a zero, as one says that starts."""
    draw = random.Random(5)
    rows: list[tuple[float, ...]] = []
    for at in range(10_000):
        x = (5e6 + at * 0.01 + draw.gauss(0, 0.5), 5e6 + draw.gauss(0, 2))
        rows.append((*x, 0.5 * x[0] + 0.5 * x[1] + draw.gauss(0, 0.1)))
    rows[far] = (0.0, 0.0, 0.0)
    intercept, coefficients, error = fit(sums_of(rows))
    left = [y - intercept - sum(c * v for c, v in zip(coefficients, x, strict=True)) for *x, y in rows]
    assert math.sqrt(statistics.fmean([d * d for d in left])) == pytest.approx(0.1, rel=0.02), "it is as good"
    assert error == pytest.approx(0.1, rel=0.02), "and says so"
    assert coefficients == pytest.approx([0.5, 0.5], abs=1e-3)


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=70),
    st.sampled_from([0.0, 1e6, 0.1 + 2**40]),
    st.booleans(),
)
def test_products_are_those_about_the_mean_within_twice_the_rounding_that_is_told(
    rows: list[tuple[float, float]], offset: float, zero_first: bool
) -> None:
    rows = [(0.0, 0.0)] * zero_first + [(x + offset, y - offset) for x, y in rows]
    sums = sums_of(rows)
    exact = [[Fraction(value) for value in column] for column in zip(*rows, strict=True)]
    apart = [[value - sum(column) / len(column) for value in column] for column in exact]
    true = [[float(sum(map(mul, a, b))) for b in apart] for a in apart]
    got = sums.covariances()
    for a, b in ((0, 0), (1, 0), (1, 1)):
        assert got[a][b] == got[b][a]
        assert abs(got[a][b] - true[a][b]) <= 2 * sums.rounding * math.sqrt(true[a][a] * true[b][b])


@pytest.mark.parametrize("apart", [1e-3, 1e-4, 1e-5])
def test_fields_that_are_nearly_equal_are_both_used(apart: float) -> None:
    draw = random.Random(4)
    rows = []
    for _ in range(1_000):
        x, more = draw.gauss(20, 5), draw.gauss(0, 1)
        rows.append((x, x + 5 * apart * more, more + draw.gauss(0, 0.01)))
    _, coefficients, error = fit(sums_of(rows))
    assert coefficients == pytest.approx([-0.2 / apart, 0.2 / apart], rel=0.01)
    assert error == pytest.approx(0.01, rel=0.2)


@pytest.mark.parametrize(
    "rows",
    [
        [(n * 1e-160, n * 1e149) for n in range(5)],
        [(n * 1e-139, n * 1e149) for n in range(5)],
        [(1e149 * (-1) ** n, 1e-170 * n) for n in range(5)],
        [(-7e149 if n else 7e149, n * 1e-3) for n in range(12_000)],
    ],
)
def test_a_model_of_values_at_the_ends_of_the_range_is_finite(rows: list[tuple[float, float]]) -> None:
    intercept, coefficients, error = fit(sums_of(rows))
    assert all(math.isfinite(number) for number in (intercept, *coefficients, error))


def test_a_constant_target_is_its_own_prediction() -> None:
    intercept, coefficients, error = fit(sums_of([(x, 0.1) for x in range(10)]))
    assert intercept == pytest.approx(0.1)
    assert (coefficients, error) == ([0.0], 0.0)


def test_every_so_many_rows_of_a_key_give_a_model_that_predict_takes() -> None:
    made = TrainRegression("y", ["x"], 3, keys=["source"])
    rows = [row("ab"[n % 2], float(n), x=n, y=10 * n + n % 2) for n in range(14)]
    got = fed(made, *rows)
    assert [(r["source"], r["time"], r["model"]["version"]) for r in got] == [
        ("a", 4.0, 1), ("b", 5.0, 1), ("a", 10.0, 2), ("b", 11.0, 2),
    ]  # fmt: skip
    for r in got:
        model = model_untrusted(unpack(pack(r["model"])), frozenset({"x"}))
        predicted = compile_expression(model.expression)(row(x=100))
        assert predicted == pytest.approx(1000 + (r["source"] == "b"))
        assert r["model"]["about"] == {
            "target": "y", "rows": 3, "until": r["time"], "rmse": pytest.approx(0.0, abs=1e-6),
        }  # fmt: skip
        assert set(r) == {"time", "source", "model"}


def test_rows_that_lack_a_value_or_have_a_bad_one_are_left_out_and_counted() -> None:
    made = TrainRegression("y", ["x"], 3)
    good = [row(x=n, y=n) for n in range(3)]
    bad = [row(x="1", y=1), row(x=True, y=float("nan")), row(x=1e200, y=1), row(x=10**400, y=1), row(x=10**400, y=0.5)]
    assert len(fed(made, good[0], row(x=1), row(x=None, y=1), *bad, *good[1:])) == 1
    assert made.drops == {"bad_value (values)": 6, "absent (values)": 2}
    assert not fed(made, row(x=9e149, y=9e149))
    assert made.drops["bad_value (values)"] == 7, "each within the range, not the sum of their squares"


def test_great_integers_do_not_stop_a_checkpoint() -> None:
    made, again = (TrainRegression("y", ["x"], 5) for _ in range(2))
    fed(made, *(row(x=2**70 - n * 10**17, y=n) for n in range(4)))
    again.restore(unpack(pack(made.delta())))
    rest = row(x=2**70 - 4 * 10**17, y=4)
    assert fed(again, rest) == fed(made, rest)
    assert fed(made, *(row(x=2**70 - n * 10**17, y=n) for n in range(5)))[0]["model"]["coefficients"] == {
        "x": pytest.approx(-1e-17)
    }


STEPS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-9, 9), st.integers(-9, 9)), max_size=9)


@given(st.lists(STEPS, max_size=5))
def test_deltas_and_snapshots_bring_it_back(batches: list[list[tuple[str, int, int]]]) -> None:
    made, by_deltas, by_snapshot = (TrainRegression("y", ["x"], 4, keys=["source", "room"]) for _ in range(3))
    for batch in batches:
        fed(made, *(row(source, x=x, y=y) for source, x, y in batch))
        if (delta := made.delta()) is not None:
            by_deltas.restore(unpack(pack(delta)))
        assert made.delta() is None
    if (snapshot := made.snapshot()) is not None:
        by_snapshot.restore(unpack(pack(snapshot)))
    rest = [row(source, x=n * n, y=n) for n in range(6) for source in "ab"]
    assert fed(by_deltas, *rest) == fed(by_snapshot, *rest) == fed(made, *rest)


def test_a_window_that_an_older_version_has_begun_is_gone_on_with() -> None:
    """Its sums are about the first row, whole numbers as they came, and of any number of rows."""
    rows = [(3 * n % 7, n * n % 11) for n in range(40)]
    apart = [(x - rows[0][0], y - rows[0][1]) for x, y in rows[:21]]
    sums = [float(sum(column)) for column in zip(*apart, strict=True)]
    products = [float(sum(a * b for a, b in pairs)) for pairs in _products(apart)]
    made, again = (TrainRegression("y", ["x"], 40) for _ in range(2))
    again.restore({"gone": [], "windows": [[None, [4, 21, *rows[0], *sums, *products]]]})
    (true,) = fed(made, *(row(x=x, y=y) for x, y in rows))
    (got,) = fed(again, *(row(x=x, y=y) for x, y in rows[21:]))
    assert (got["model"]["version"], got["model"]["about"]["rows"]) == (5, 40)
    for name in ("intercept", "coefficients"):
        assert got["model"][name] == pytest.approx(true["model"][name])
    assert got["model"]["about"]["rmse"] == pytest.approx(true["model"]["about"]["rmse"])


def _products(rows: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    return [[(row[a], row[b]) for row in rows] for a, b in ((0, 0), (1, 0), (1, 1))]


def test_keys_are_bounded() -> None:
    made, again = (TrainRegression("y", ["x"], 4, keys=["source"]) for _ in range(2))
    for sources in (range(MAX_KEYS), [MAX_KEYS]):
        fed(made, *(row(f"s{n}", x=1, y=1) for n in sources))
        again.restore(made.delta())
    assert made.drops == {"too many keys (keys)": MAX_KEYS // PORTIONS}
    assert list(made.windows) == list(again.windows) == [f"s{n}" for n in range(MAX_KEYS // PORTIONS, MAX_KEYS + 1)]


def test_the_state_of_another_regression_is_refused() -> None:
    made = TrainRegression("y", ["x"], 4)
    fed(made, row(x=1, y=1))
    with pytest.raises(ValueError, match="expected 14 sums of 3 columns, got 9"):
        TrainRegression("y", ["x", "z"], 4).restore(made.delta())


def document(**parameters: Any) -> dict[str, Any]:
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "by": {"type": "key_by", "input": "in", "keys": ["room"]},
        "fit": {
            "type": "train_regression",
            "input": "by",
            "target": "y",
            "fields": ["x", "z"],
            "size": 9,
            **parameters,
        },
        "out": {"type": "publish", "input": "fit", "topic": "models/{room}", "payload_field": "model", "retain": True},
    }
    return {"name": "f", "operators": operators}


def test_a_flow_decodes_the_fields_and_the_key() -> None:
    assert fields_needed(from_plain(document(), REGISTRY), REGISTRY, "in") == frozenset({"x", "y", "z", "room"})


def test_a_key_that_the_model_would_replace_is_refused() -> None:
    plain = document()
    plain["operators"]["by"]["keys"] = ["model"]
    plain["operators"]["out"]["topic"] = "models/{model}"
    with pytest.raises(DocumentError, match=r"fit.output: expected a name that is not also a key, got 'model'"):
        from_plain(plain, REGISTRY)
    plain["operators"]["fit"]["output"] = plain["operators"]["out"]["payload_field"] = "fitted"
    from_plain(plain, REGISTRY)


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"fields": ["x", "y"]}, "fields"),
        ({"fields": [f"x{n}" for n in range(25)], "size": 99}, "fields"),
        ({"size": 3}, "size"),
        ({"output": "time"}, "output"),
    ],
)
def test_what_cannot_work_is_refused_with_its_place(parameters: dict[str, Any], path: str) -> None:
    with pytest.raises(DocumentError) as refused:
        from_plain(document(**parameters), REGISTRY)
    assert [p.path for p in refused.value.problems] == [f"operators.fit.{path}"]
