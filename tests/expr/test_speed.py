"""Upper bounds that catch a change of kind (a call per row, a fallback on every batch), not one of machine."""

from __future__ import annotations

import timeit
from typing import Any

from edgert.expr import Filter, Map, Step, compile_chain, parse

ROWS: list[dict[str, Any]] = [
    {"time": float(i), "source": "s", "temperature": 20.0, "humidity": 50.0, "light": 9.0, "dust": 8.0, "air": 7.0}
    for i in range(100)
]


def per_row_us(chain: Any) -> float:
    return min(timeit.repeat(lambda: chain.apply(ROWS), number=200, repeat=10)) / 200 / len(ROWS) * 1e6


def test_a_range_filter_costs_little_per_row() -> None:
    """Measured on the development machine: 0.05 µs."""
    assert per_row_us(compile_chain([Filter(parse("temperature >= -12.5 and temperature <= 43.1"))])) < 0.15 * 4


def test_filter_and_map_fused_cost_little_per_row() -> None:
    """Measured on the development machine: 0.4 µs, most of it the copy of the row."""
    steps: list[Step] = [Filter(parse("-12.5 <= temperature <= 43.1")), Map({"f": parse("temperature * 9 / 5 + 32")})]
    assert per_row_us(compile_chain(steps)) < 0.4 * 5
