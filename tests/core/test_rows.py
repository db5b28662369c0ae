"""The packed form of rows."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edgert.core.rows import pack_rows, unpack_rows

CELLS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=5)


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), CELLS), max_size=6))
def test_rows_survive_packing_in_order(rows: list[dict[str, Any]]) -> None:
    assert unpack_rows(pack_rows(rows)) == rows


def test_names_stand_once_for_rows_with_the_same_fields() -> None:
    packed = pack_rows([{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"b": 5}])
    assert packed == [[("a", "b"), [[1, 2], [3, 4]]], [("b",), [[5]]]]
