"""Result rows as a flow over 50 sensors makes them: one window of a second per sensor, ten readings in each."""

from __future__ import annotations

import random
import statistics
from typing import Any, Final

from edgert.core.results import Schema, row_columns

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
    """The same for the same seed. Temperatures to a tenth of a degree, dust to a hundredth."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._second = 0
        self._warm = [self._draw.uniform(5.0, 30.0) for _ in range(RATE)]

    def seconds(self, count: int) -> list[list[Any]]:
        """The rows of the next `count` seconds."""
        rows = []
        for _ in range(count):
            begin = START + self._second
            rows += [self._row(begin, sensor) for sensor in range(RATE)]
            self._second += 1
        return rows

    def _row(self, begin: float, sensor: int) -> list[Any]:
        draw = self._draw
        self._warm[sensor] += draw.gauss(0.0, 0.01)
        warm = [round(self._warm[sensor] + draw.gauss(0.0, 0.2), 1) for _ in range(READINGS)]
        dust = [round(draw.lognormvariate(5.0, 0.5), 2) for _ in range(READINGS)]
        mean = statistics.fmean(warm)
        m2 = sum((w - mean) ** 2 for w in warm)
        name = f"ci4{sensor:02}mk2a{sensor * 7919 % 100_000:05}"
        return [begin, begin + 1.0, name, READINGS, sum(warm), READINGS, sum(warm), READINGS, mean, m2, min(warm),
                max(warm), READINGS, sum(dust)]  # fmt: skip
