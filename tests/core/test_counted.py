"""Numbers of things in a sentence."""

from __future__ import annotations

from edgert.core.text.counted import counted


def test_one_thing_is_not_many() -> None:
    assert [counted(number, "row") for number in (0, 1, 1200)] == ["0 rows", "1 row", "1,200 rows"]
