"""Batches that are taken apart."""

from __future__ import annotations

from collections.abc import Callable
from sys import getsizeof
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, part, parts, size_of


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
    return sum(getsizeof(row) + sum(map(getsizeof, row.values())) for row in rows)


@pytest.mark.parametrize(
    "more",
    [
        lambda n: {},
        lambda n: {f"f{k}": float(k * n) for k in range(7)},
        lambda n: {"text": "x" * 20_000},
        lambda n: {"text": "жж" * 5_000},
        lambda n: {"picture": bytes(20_000), "v": n},
        lambda n: {"id": f"{n:036d}"},
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
