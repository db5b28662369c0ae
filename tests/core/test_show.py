"""Untrusted values in error messages: short, and cheap however large they are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.errors import show

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(VALUES, st.integers(10, 200))
def test_a_value_is_shown_as_python_writes_it_cut_at_the_limit(value: Any, limit: int) -> None:
    text = repr(value)
    assert show(value, limit) == (text if len(text) <= limit else f"{text[: limit - 1]}…")


def test_of_a_long_text_the_beginning_is_shown() -> None:
    assert show("a" * 100, 10) == "'aaaaaaaa…"
    assert show(b"a" * 100, 10) == "b'aaaaaaa…"


class Untouchable:
    def __repr__(self) -> str:
        raise AssertionError("a part beyond the limit is not rendered")


@pytest.mark.parametrize("wrap", [list, tuple, lambda items: dict(enumerate(items)), lambda items: {"a": [[*items]]}])
def test_nothing_beyond_the_limit_is_rendered(wrap: Any) -> None:
    shown = show(wrap([*range(100), Untouchable()]))
    assert len(shown) == 60
    assert shown.endswith("…")


@pytest.mark.parametrize("limit", [60, 100_000])
def test_what_is_nested_without_end_and_a_number_without_end_are_named(limit: int) -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert show(nested, limit) in ("[" * 59 + "…", "a list that cannot be shown")
    assert show([10**5_000]) == "a list that cannot be shown"
