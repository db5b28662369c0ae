"""Batches that are taken apart."""

from __future__ import annotations

from collections.abc import Callable
from sys import getsizeof
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, held_bytes, part, parts, size_of


@given(length=st.integers(1, 60), rows=st.integers(1, 70), size=st.integers(0, 10_000), owed=st.booleans())
def test_parts_are_all_of_it_in_order_and_add_up_to_its_size(length: int, rows: int, size: int, owed: bool) -> None:
    raw = RawBatch([f"t{n}" for n in range(length)], [b"%d" % n for n in range(length)], 1.0, 2.0, size, owed)
    plain = Batch([{"n": n} for n in range(length)], 1.0, 7.0, size)
    for batch in (raw, plain):
        cut = parts(batch, rows)
        assert cut == [part(batch, at, min(at + rows, length)) for at in range(0, length, rows)]
        assert sum(piece.size for piece in cut) == size
    assert [t for piece in parts(raw, rows) for t in piece.topics] == raw.topics  # type: ignore[union-attr]
    assert [p.watermark for p in parts(plain, rows)] == [NO_WATERMARK] * (-(-length // rows) - 1) + [7.0]  # type: ignore[union-attr]


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


def test_nothing_takes_nothing_and_a_row_alone_what_it_holds() -> None:
    assert size_of([]) == 0
    assert 20_000 < size_of([{"time": 0.0, "source": "a", "text": "x" * 20_000}]) < 21_000


def test_however_deep_a_value_is_all_of_it_counts() -> None:
    deep: Any = "x" * 20_000
    for _ in range(5_000):
        deep = [deep]
    assert 20_000 + 5_000 * getsizeof([1]) < held_bytes(deep) < 21_000 + 5_000 * getsizeof([1])
