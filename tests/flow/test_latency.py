"""`latency` of a flow document."""

from __future__ import annotations

import re
from typing import Any

import pytest

from edgert.flow.options.latency import PATTERN, parse


@pytest.mark.parametrize(("text", "seconds"), [("100 ms", 0.1), ("1ms", 0.001), ("2.5 s", 2.5), ("60 min", 3600.0)])
def test_a_time_with_its_unit_is_taken(text: str, seconds: float) -> None:
    found, problems = parse(text)
    assert found == pytest.approx(seconds)
    assert problems == []
    assert re.match(PATTERN, text)


def test_nothing_is_no_wish() -> None:
    assert parse(None) == (None, [])


@pytest.mark.parametrize("wrong", [100, "100", "fast", "0.5 ms", "61 min", "-1 s", "1 h", "1e3 s", "١ s", "1  s"])
def test_anything_else_is_refused_with_what_was_expected(wrong: Any) -> None:
    found, problems = parse(wrong)
    assert found is None
    (problem,) = problems
    assert problem.path == "latency"
    assert "such as '100 ms'" in problem.expected
