"""The results of a flow's newest window, for people: one row per key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from edgert.core.batch import Row, row_bytes
from edgert.core.text.long_text import beyond_short

MOST_ROWS: Final = 10_000
"""Rows that are kept, which takes some megabytes; of a window with more keys these are the first."""
MOST_BYTES: Final = 16 << 20
"""Bytes of these rows and their keys: fewer are kept where they have long texts."""


class LatestWindow:
    """Written by the store thread, read by the daemon's loop: `rows` only grows, or is another list for another window,
    so that a slice of it is whole."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self.keys = tuple(keys)
        self.start: float | None = None
        self.rows: list[Row] = []
        self.beyond = 0
        """Rows of the window that are not kept."""
        self.changes = 0
        """Calls of `add`; it tells whether there is anything new."""
        self._indexes: dict[tuple[str, ...], int] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, rows: Iterable[Row]) -> None:
        """Takes what a flow shipped. A newer contribution of a key replaces an older one; older windows are skipped."""
        self.changes += 1
        for row in rows:
            window: float = row["window_start"] if "window_start" in row else row["time"]
            if self.start is None or window > self.start:
                self.start, self.rows, self.beyond, self._bytes = window, [], 0, 0
                self._indexes.clear()
            elif window < self.start:
                continue
            key = self._key(row)
            index = self._indexes.get(key)
            more = row_bytes(row) + beyond_short(key) if index is None else row_bytes(row) - row_bytes(self.rows[index])
            if self._bytes + more > MOST_BYTES or (index is None and len(self.rows) >= MOST_ROWS):
                self.beyond += 1
                continue
            self._bytes += more
            if index is None:
                self._indexes[key] = len(self.rows)
                self.rows.append(row)
            else:
                self.rows[index] = row

    def _key(self, row: Row) -> tuple[str, ...]:
        return tuple(repr(row.get(name)) for name in self.keys)
