"""The results of a flow's newest window, for people: one row per key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from edgert.core.batch import Row

MOST_ROWS: Final = 500
"""Rows that are kept; of a window with more keys these are the first."""


class LatestWindow:
    """Written by the store thread, read by the daemon's loop: `rows` is replaced, never changed in place."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self.keys = tuple(keys)
        self.start: float | None = None
        self.rows: tuple[Row, ...] = ()
        self.beyond = 0
        """Rows of the window that are not kept."""

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, rows: Iterable[Row]) -> None:
        """Takes what a flow shipped. A newer contribution of a key replaces an older one; older windows are skipped."""
        kept = {self._key(row): row for row in self.rows}
        start: float | None = self.start
        beyond = self.beyond
        for row in rows:
            window: float = row["window_start"] if "window_start" in row else row["time"]
            if start is None or window > start:
                start, kept, beyond = window, {}, 0
            elif window < start:
                continue
            key = self._key(row)
            if key in kept or len(kept) < MOST_ROWS:
                kept[key] = row
            else:
                beyond += 1
        self.start, self.rows, self.beyond = start, tuple(kept.values()), beyond

    def _key(self, row: Row) -> tuple[str, ...]:
        return tuple(repr(row.get(name)) for name in self.keys)
