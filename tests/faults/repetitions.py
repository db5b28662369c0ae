"""What an at-least-once flow may do and what not: repeat what had left before a death, and lose nothing."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from heapq import nlargest
from pathlib import Path
from typing import Any

from tests.faults.publisher import Difference, Window, window_of


def compare(truth: Mapping[Window, int], rows: Iterable[Mapping[str, Any]]) -> Difference:
    """`rows` of the landing table, all that count. No row has a message twice, so the bits of its sum are its messages;
    of the windows those are told of which one is missing, or that hold what nobody sent."""
    seen: dict[Window, int] = defaultdict(int)
    counted: dict[Window, int] = defaultdict(int)
    for row in rows:
        window = window_of(row)
        seen[window] |= int(row["bits"])
        counted[window] += row["n"]
    lost = doubled = 0
    wrong = []
    for window in sorted(truth.keys() | seen.keys()):
        sent = (1 << truth.get(window, 0)) - 1
        missing, foreign = (sent & ~seen[window]).bit_count(), (seen[window] & ~sent).bit_count()
        lost += missing
        doubled += counted[window] - seen[window].bit_count()
        if missing or foreign:
            wrong.append(f"window {window[0]:.1f} of {window[1]}: {missing} messages missing, {foreign} nobody sent")
    return Difference(lost, doubled, tuple(wrong))


def foreseen(database: Path) -> int:
    """Result rows of which the gateway says that they had left when it went back to a checkpoint."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        (rows,) = connection.execute("SELECT coalesce(sum(repeated), 0) FROM ahead").fetchone()
    return int(rows)


def most_messages(rows: Iterable[Mapping[str, Any]], repeated: int) -> int:
    """How many messages may be doubled where so many of the landing table's rows had left and were made again: what was
    in a row may come again in several, but no more of it."""
    return sum(nlargest(repeated, (row["n"] for row in rows)))
