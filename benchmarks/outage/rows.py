"""Result rows as a flow over 50 sensors makes them: one window of a second per sensor, ten readings in each."""

from __future__ import annotations

import random
import statistics
from typing import Any, Final

from edgert.core.ids import make_epoch
from edgert.core.results.result_schema import Schema, row_columns

FLEET: Final = "bench"
GATEWAY: Final = "g1"
FLOW: Final = "city-air"
EPOCH: Final = make_epoch(1, 7)
RATE: Final = 50
"""Result rows per second: one per sensor."""
SCHEMA: Final = Schema(
    1.0,
    (("source", "string"),),
    (
        ("n", "count"), ("total", "sum"), ("average", "mean"), ("spread", "variance"), ("low", "min"), ("high", "max"),
        ("dust", "mean"),
    ),
)  # fmt: skip
COLUMNS: Final = row_columns(SCHEMA)
READINGS: Final = 10
START: Final = 1_760_000_000.0


class Rows:
    """The same for the same seed. Temperatures to a tenth of a degree, dust to a hundredth. After `different_s` the
    same come again, for later windows."""

    def __init__(self, seed: int, different_s: int = 1_800) -> None:
        draw = random.Random(seed)
        self._second = 0
        warm = [draw.uniform(5.0, 30.0) for _ in range(RATE)]
        self._different = [[_row(draw, warm, sensor) for sensor in range(RATE)] for _ in range(different_s)]

    def seconds(self, count: int) -> list[list[Any]]:
        """The rows of the next `count` seconds."""
        rows: list[list[Any]] = []
        for _ in range(count):
            begin = START + self._second
            rows += [[begin, begin + 1.0, *row] for row in self._different[self._second % len(self._different)]]
            self._second += 1
        return rows


def _row(draw: random.Random, warm: list[float], sensor: int) -> list[Any]:
    """Key and partial columns of one window."""
    warm[sensor] += draw.gauss(0.0, 0.01)
    readings = [round(warm[sensor] + draw.gauss(0.0, 0.2), 1) for _ in range(READINGS)]
    dust = [round(draw.lognormvariate(5.0, 0.5), 2) for _ in range(READINGS)]
    mean = statistics.fmean(readings)
    m2 = sum((r - mean) ** 2 for r in readings)
    name = f"ci4{sensor:02}mk2a{sensor * 7919 % 100_000:05}"
    return [name, READINGS, sum(readings), READINGS, sum(readings), READINGS, mean, m2, min(readings), max(readings),
            READINGS, sum(dust)]  # fmt: skip
