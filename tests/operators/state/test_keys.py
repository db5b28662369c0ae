"""Keys take the type of their column, row by row, in a window."""

from __future__ import annotations

import itertools

import pytest

from edgert.operators.windows import CONTRIBUTION
from tests.operators.windows_world import NOW, at, row, rows_at, window


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("string", "x", "x"), ("string", 7, "7"), ("string", None, None), ("long", 7, 7), ("long", "7", 7),
        ("long", 7.0, 7), ("double", 2, 2.0), ("double", "2.5", 2.5), ("boolean", True, True), ("boolean", None, None),
    ],
)  # fmt: skip
def test_keys_take_the_type_of_their_column(kind: str, value: object, shown: object) -> None:
    made = window(keys=(("k", kind),))
    (got,) = rows_at(made.process(at(10.0, row(1.0, k=value)), 0, NOW), CONTRIBUTION)
    assert (got["k"], type(got["k"])) == (shown, type(shown))


@pytest.mark.parametrize(
    ("kind", "value"),
    [("long", 7.5), ("long", "x"), ("double", "x"), ("boolean", "false"), ("long", 10**30),
     ("long", 2**63), ("long", "9" * 30), ("long", 1e30), ("double", "nan"), ("double", float("inf")),
     ("double", 10**400)],
)  # fmt: skip
def test_a_key_that_would_be_cut_or_guessed_is_counted_and_costs_its_row_only(kind: str, value: object) -> None:
    made = window(keys=(("k", kind),))
    out = made.process(at(10.0, row(1.0, k=value), row(1.0, k=None)), 0, NOW)
    assert [r["k"] for r in rows_at(out, CONTRIBUTION)] == [None]
    assert made.drops == {"bad_key": 1}


@pytest.mark.parametrize(
    ("kind", "groups"),
    [
        ("string", [("1", 1), ("1.0", 1), ("True", 1)]), ("long", [(1, 4)]), ("double", [(1.0, 4)]),
        ("boolean", [(True, 1)]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("values", list(itertools.permutations([1, 1.0, True])))
def test_what_a_key_looks_like_does_not_depend_on_who_comes_first(
    kind: str, groups: list[tuple[object, int]], values: tuple[object, ...]
) -> None:
    """They are one key to a dict."""
    made = window(keys=(("k", kind),))
    rows = [row(1.0, k=value) for value in (*values, "1" if kind in ("long", "double") else None)]
    out = made.process(at(10.0, *rows), 0, NOW)
    got = [(r["k"], type(r["k"]), r["n"]) for r in rows_at(out, CONTRIBUTION) if r["k"] is not None]
    assert sorted(got, key=repr) == [(key, type(key), n) for key, n in groups]
