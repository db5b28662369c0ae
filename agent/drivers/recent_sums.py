"""Sums of counters over the recent past: what was counted counts half after `HALF_LIFE_S`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HALF_LIFE_S: Final = 5.0
"""At one look per second the sums cover some seven seconds: a changed cost shows within seconds, noise does not."""

FORGOTTEN: Final = 1e-6


class RecentSums:
    """Turns counters since a start into sums over the recent past, one for each counter and operator."""

    def __init__(self, half_life_s: float = HALF_LIFE_S) -> None:
        self._half_life_s = half_life_s
        self._before: Mapping[str, Mapping[str, float]] = {}
        self._at_s = 0.0
        self._sums: dict[str, dict[str, float]] = {}

    def look(self, at_s: float, counters: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
        """The sums at `at_s` (monotonic). `counters`: operator -> counter -> value since the start.

        All that a new operator counted before weighs as much as one row: its ratios are known at once, and soon
        outweighed. A counter that went back (a restart) starts anew.
        The counter `span_s` is added: seconds between looks.
        """
        passed_s = max(0.0, at_s - self._at_s) if self._before else 0.0
        kept = 0.5 ** (passed_s / self._half_life_s)
        sums: dict[str, dict[str, float]] = {}
        for operator, now in counters.items():
            before, old = self._before.get(operator), self._sums.get(operator, {})
            restarted = before is not None and any(now[c] < before.get(c, 0.0) for c in now)
            if before is None or restarted:
                weight = 1.0 / max([1.0, *now.values()])
                sums[operator] = {**{c: value * weight for c, value in now.items()}, "span_s": 0.0}
                continue
            # What has counted nothing for hours keeps its ratios.
            fading = max(old.values(), default=0.0) < FORGOTTEN
            new = {c: old.get(c, 0.0) * (1.0 if fading else kept) + now[c] - before.get(c, 0.0) for c in now}
            # The same decay as for what is counted: a steady rate then gives exactly itself.
            new["span_s"] = old.get("span_s", 0.0) * kept + passed_s
            sums[operator] = new
        self._before, self._at_s, self._sums = {o: dict(c) for o, c in counters.items()}, at_s, sums
        return sums
