"""Batches that are taken apart."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from sys import getsizeof
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, held_bytes, size_of, slice_of


@given(length=st.integers(1, 60), rows=st.integers(1, 70), size=st.integers(0, 10_000), owed=st.booleans())
def test_parts_are_all_of_it_in_order_and_add_up_to_its_size(length: int, rows: int, size: int, owed: bool) -> None:
    raw = RawBatch([f"t{n}" for n in range(length)], [b"%d" % n for n in range(length)], 1.0, 2.0, size, owed)
    plain = Batch([{"n": n} for n in range(length)], 1.0, 7.0, size)
    for batch in (raw, plain):
        cut = parts(batch, rows)
        assert sum(piece.size for piece in cut) == size
    assert [t for piece in parts(raw, rows) for t in piece.topics] == raw.topics  # type: ignore[union-attr]
    assert [p.watermark for p in parts(plain, rows)] == [NO_WATERMARK] * (-(-length // rows) - 1) + [7.0]  # type: ignore[union-attr]


def parts(batch: Batch | RawBatch, rows: int) -> list[Batch | RawBatch]:
    return [slice_of(batch, at, min(at + rows, len(batch))) for at in range(0, len(batch), rows)]


def resident(rows: list[dict[str, Any]]) -> int:
    return sum(getsizeof(row) + sum(map(all_of, row.values())) for row in rows)


def all_of(value: Any) -> int:
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return getsizeof(value) + sum(map(all_of, inner))


@pytest.mark.parametrize(
    "more",
    [
        lambda n: {},
        lambda n: {f"f{k}": float(k * n) for k in range(7)},
        lambda n: {"text": "x" * 20_000},
        lambda n: {"text": "жж" * 5_000},
        lambda n: {"picture": bytes(20_000), "v": n},
        lambda n: {"id": f"{n:036d}"},
        lambda n: {"texts": [f"{n}-{k}" + "x" * 1_000 for k in range(20)]},
        lambda n: {"deep": {"a": [[{"b": n + 0.5} for _ in range(50)]]}},
        lambda n: {"text": "x" * 20_000} if n % 3 == 0 else {"v": 1.0},
        lambda n: {"v": 1.0} if n % 4 else {"text": "x" * 20_000},
    ],
)
@pytest.mark.parametrize("length", [200, 2_000])
def test_the_size_is_that_of_the_rows_within_a_factor_of_two(more: Callable[[int], Any], length: int) -> None:
    rows = [{"time": 1.7e9 + n, "source": f"device-{n}", **more(n)} for n in range(length)]
    assert 0.5 < size_of(rows) / resident(rows) < 2


@given(
    period=st.integers(1, 1_100),
    heavy=st.lists(st.tuples(st.floats(0.0, 1.0, exclude_max=True), st.integers(0, 20_000)), max_size=12),
    usual=st.sampled_from([0, 0, 2_000, 20_000]),
    length=st.integers(1, 1_000),
)
@example(11, [(0.0, 0)], 5_000, 44)
@example(11, [(0.0, 0)], 20_000, 50)
@example(201, [(0.0, 20_000)], 0, 200)
def test_no_pattern_of_rows_hides_what_is_in_them(
    period: int, heavy: list[tuple[float, int]], usual: int, length: int
) -> None:
    """Devices in turn, most of which give a text of `usual` characters, and some, by place in the period, another."""
    texts = dict.fromkeys(range(period), usual) | {int(place * period): text for place, text in heavy}
    pattern = [{"time": 0.0, "source": "a", "text": "x" * text} for text in texts.values()]
    held = list(accumulate((resident([row]) for row in pattern), initial=0))
    told, at = 0, 0
    for _ in range(100):
        end = at % period + length
        rows = (pattern * (end // period + 1))[at % period : end]
        at += length
        told += size_of(rows, at)
    real = at // period * held[-1] + held[at % period]
    assert 0.5 < told / real < 2


def test_nothing_takes_nothing_and_a_row_alone_what_it_holds() -> None:
    assert size_of([]) == 0
    assert 20_000 < size_of([{"time": 0.0, "source": "a", "text": "x" * 20_000}]) < 21_000


def test_however_deep_a_value_is_all_of_it_counts() -> None:
    deep: Any = "x" * 20_000
    for _ in range(5_000):
        deep = [deep]
    assert 20_000 + 5_000 * getsizeof([1]) < held_bytes(deep) < 21_000 + 5_000 * getsizeof([1])
