"""Local times without a zone: which moment they are, also in the hour that comes twice when summer time ends.

A time of that hour has two readings. A row that arrives soon after it was made has the reading that is nearer to its
arrival. Rows that come late, one after the other, go on from the last time of their device. Berlin, 25 October 2026:

    text     arrival (UTC)   readings (UTC)   chosen
    02:30    00:30           00:30  01:30     00:30, nearer to arrival
    02:30    01:30           00:30  01:30     01:30, nearer to arrival
    02:00    05:00           00:00  01:00     00:00, if the row before, as late, was of 01:59
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, tzinfo
from typing import Final

NEAR_S: Final = 600.0
"""A row that arrives within so many seconds has the first reading: no zone is put back by less than 20 minutes. Only
later rows are looked at."""
AHEAD_S: Final = 300.0
"""A reading that is further ahead of arrival is not taken."""
MOST_DEVICES: Final = 10_000


class LocalTimes:
    """Reads the local times of one source."""

    def __init__(self, zone: tzinfo = UTC) -> None:
        self.zone = zone
        self._last: dict[str, float] = {}
        """The time of each device's last row that came late."""

    def seconds(self, moment: datetime, device: str = "", arrival: float = math.nan) -> float:
        """Seconds since the epoch of a time without a zone. `arrival` in the same, NaN while the clock is not set.
        Raises `ValueError`, `OverflowError` for a time that no clock shows."""
        first = moment.replace(tzinfo=self.zone).timestamp()
        if arrival - first > NEAR_S and self.zone is not UTC:
            return self._late(moment, first, device, arrival)
        return first

    def _late(self, moment: datetime, first: float, device: str, arrival: float) -> float:
        second = moment.replace(tzinfo=self.zone, fold=1).timestamp()
        chosen = first
        if second > first and self._is_second(first, second, device, arrival):
            chosen = second
        if len(self._last) >= MOST_DEVICES:
            self._last.clear()
        self._last[device] = chosen
        return chosen

    def _is_second(self, first: float, second: float, device: str, arrival: float) -> bool:
        half = (second - first) / 2
        last = self._last.get(device)
        if last is not None and 0 <= first - last < half:
            return False
        if last is not None and 0 <= second - last < half:
            return True
        return second <= arrival + AHEAD_S and arrival - first > half


UTC_TIMES: Final = LocalTimes()
DIGITS_FROM: Final = 19_700_101_000_000
DIGITS_TO: Final = 21_000_000_000_000
"""Numbers from the one to below the other spell a local time (`20261128183807`): as milliseconds they would be of years
beyond 2590."""


def of_digits(number: float) -> datetime:
    """The local time that a number of 14 digits spells. Raises `ValueError` for a month 13."""
    return datetime.strptime(f"{number:.0f}", "%Y%m%d%H%M%S")  # noqa: DTZ007 - it names no zone
