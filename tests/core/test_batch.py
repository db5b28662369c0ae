"""Batches that are taken apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, part, parts


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
