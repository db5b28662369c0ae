"""The status in the forms that readers ask for, made once for all of them on the gateway's own loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")
MakeView = Callable[[Mapping[str, Any]], T]
"""Makes an answer of a status."""
FRESH_S: Final = 0.5
"""A status younger than this is used again, however many ask."""
MOST_PART: Final = 0.1
"""Statuses and answers take no greater part of the loop's time: a large one is used for longer."""
LONGEST_S: Final = 10.0


class Snapshots:
    """The newest status and the answers made of it. Times are seconds."""

    def __init__(
        self,
        status: Callable[[], Mapping[str, Any]],
        now: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._make, self._now, self._cpu = status, now, cpu
        self._status: Mapping[str, Any] = {}
        self._views: dict[MakeView[Any], Any] = {}
        self._made_at, self._cost_s = float("-inf"), 0.0

    def view(self, make: MakeView[T]) -> T:
        """The answer that `make` gives of a status that is fresh enough; shared by all who ask for the same."""
        if self._now() - self._made_at >= min(LONGEST_S, max(FRESH_S, self._cost_s / MOST_PART)):
            self._views.clear()
            self._cost_s = 0.0
            self._status = self._timed(self._make)
            self._made_at = self._now()
        if make not in self._views:
            self._views[make] = self._timed(lambda: make(self._status))
        return cast(T, self._views[make])

    def _timed(self, make: Callable[[], T]) -> T:
        began = self._cpu()
        made = make()
        self._cost_s += self._cpu() - began
        return made
