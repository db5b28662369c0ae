"""Room in the outbox: batches that will never be sent make way, and a gap takes their numbers.

What was shed is stated where it would have stood: one gap batch holds all the numbers of neighbouring batches, under
the last of them, so that the collector's order stays whole and a flood of small batches leaves one small gap.

**A number never means two things**, so only batches that cannot have left the board are shed: those above `leaving`,
which is written before a stream is sent further (`Database.departing`), and those of the transaction under way. What
may have left stays until the collector has it. (A restored card may have sent more in the time that it lost: of what it
sheds then some may have landed, so that the gap states too many rows; no row is doubled.)
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

import msgspec

from edgert.core.compression import expanded_untrusted
from edgert.core.results.results import GapBatch, pack_result
from edgert.flow.options.full_outbox import WhenFull
from edgert.store.outbox.outbox import OutboxEntry, OutboxSize, free, put, version

StreamKey = tuple[str, int, int]
"""(flow, epoch, stream)."""
FULL: Final = "outbox full"
TOO_OLD: Final = "older than outbox.greatest_age_s"
_TEXTS: Final = {
    FULL: "the outbox had reached its quota (outbox.quota_bytes); its oldest batches that had not left made way",
    TOO_OLD: "they had waited for longer than results are to wait (outbox.greatest_age_s)",
}
AT_ONCE: Final = 64
"""Batches looked at together."""
_GAP_BYTES: Final = 250
"""About what a gap takes itself."""


@dataclass(frozen=True, slots=True)
class Shed:
    """Batches that were dropped from one flow's part of the outbox."""

    flow: str
    reason: str
    batches: int
    rows: int
    change: OutboxSize
    """Change of the outbox, with the gap that came instead."""


def largest(db: sqlite3.Connection) -> list[tuple[str, int]]:
    """(flow, bytes that wait), the largest first. Costs a look at each stream that is not empty."""
    query = "SELECT flow, sum(bytes) AS size FROM stream WHERE batches > 0 GROUP BY flow ORDER BY size DESC, flow"
    return db.execute(query).fetchall()


def rows_of(db: sqlite3.Connection, flow: str) -> int:
    """Rows of a flow that wait."""
    return int(db.execute("SELECT sum(rows) FROM stream WHERE flow = ? AND batches > 0", (flow,)).fetchone()[0])


def make_room(
    db: sqlite3.Connection, gateway: str, flow: str, need: int, when_full: Mapping[str, WhenFull],
    fresh: Mapping[StreamKey, int],
) -> list[Shed]:  # fmt: skip
    """Sheds the oldest batches until `need` bytes are free for `flow`, or nothing is left that may be shed: first of
    the flow that holds the most, so that one that ships much does not push out the others. A flow that keeps all takes
    room from larger ones only. `fresh`: the first number that the transaction under way has put into a stream."""
    sizes = largest(db)
    own = dict(sizes)[flow] if when_full.get(flow) == "stop-acknowledging" else 0
    shed: list[Shed] = []
    for giving, size in sizes:
        if size <= own or when_full.get(giving) == "stop-acknowledging":
            continue
        for key, above in _streams(db, giving, fresh):
            if need <= 0:
                return shed
            for part in _shed(db, gateway, key, above, need, FULL):
                need += part.change.bytes
                shed.append(part)
    return shed


def shed_old(db: sqlite3.Connection, gateway: str, before: float) -> tuple[list[Shed], bool]:
    """Sheds what was put before the running time `before`; at most `AT_ONCE` batches of a stream at a time. And
    whether more may be there."""
    flows = [flow for (flow,) in db.execute("SELECT DISTINCT flow FROM stream WHERE batches > 0").fetchall()]
    shed: list[Shed] = []
    more = False
    for flow in flows:
        for key, above in _streams(db, flow, {}):
            with closing(_oldest(db, key, above)) as oldest:
                old = [(number, rows) for number, rows, _, _ in takewhile(lambda batch: batch[3] < before, oldest)]
            shed += _replace(db, gateway, key, above, old, TOO_OLD)
            more = more or len(old) == AT_ONCE
    return shed, more


def _streams(db: sqlite3.Connection, flow: str, fresh: Mapping[StreamKey, int]) -> list[tuple[StreamKey, int]]:
    """The streams of a flow with something in them, oldest first, each with the number above which nothing has left."""
    query = "SELECT epoch, stream, leaving FROM stream WHERE flow = ? AND batches > 0 ORDER BY epoch, stream"
    found = [((flow, epoch, stream), leaving) for epoch, stream, leaving in db.execute(query, (flow,)).fetchall()]
    return [(key, min(leaving, fresh[key] - 1) if key in fresh else leaving) for key, leaving in found]


def _oldest(db: sqlite3.Connection, key: StreamKey, above: int) -> sqlite3.Cursor:
    """(number, rows, bytes, put_at) of the first batches with rows, read one by one; openings, gaps and drops stay."""
    query = (
        "SELECT sequence, rows, length(payload), put_at FROM outbox "
        "WHERE flow = ? AND epoch = ? AND stream = ? AND sequence > ? AND rows > 0 ORDER BY sequence LIMIT ?"
    )
    return db.execute(query, (*key, above, AT_ONCE))


def _shed(db: sqlite3.Connection, gateway: str, key: StreamKey, above: int, need: int, reason: str) -> list[Shed]:
    shed: list[Shed] = []
    while need > 0:
        chosen: list[tuple[int, int]] = []
        size = 0
        with closing(_oldest(db, key, above)) as oldest:
            while size < need + _GAP_BYTES and (batch := oldest.fetchone()):
                chosen.append((batch[0], batch[1]))
                size += batch[2]
        if not chosen:
            break
        parts = _replace(db, gateway, key, above, chosen, reason)
        need += sum(part.change.bytes for part in parts)
        shed += parts
    return shed


def _replace(
    db: sqlite3.Connection, gateway: str, key: StreamKey, above: int, chosen: list[tuple[int, int]], reason: str
) -> list[Shed]:
    """Puts a gap in the place of each run of neighbours among `chosen`, (number, rows) in order."""
    runs: list[list[tuple[int, int]]] = []
    for number, rows in chosen:
        if runs and runs[-1][-1][0] == number - 1:
            runs[-1].append((number, rows))
        else:
            runs.append([(number, rows)])
    return [_put_gap(db, gateway, key, above, run, reason) for run in runs]


def _put_gap(
    db: sqlite3.Connection, gateway: str, key: StreamKey, above: int, run: list[tuple[int, int]], reason: str
) -> Shed:
    low, high, rows = run[0][0], run[-1][0], sum(rows for _, rows in run)
    change = free(db, *key, low - 1, high)
    numbers, all_rows = high - low + 1, rows
    if before := _gap_before(db, key, above, low, reason):
        change = change.plus(free(db, *key, low - 2, low - 1))
        numbers, all_rows = numbers + before["numbers"], all_rows + before["rows"]
    flow, epoch, stream = key
    gap = GapBatch(
        gateway=gateway, flow=flow, epoch=epoch, stream=stream, sequence=high, flow_version=version(db, flow, epoch),
        reason=reason, rows=all_rows, numbers=numbers, text=f"{numbers} batches were dropped: {_TEXTS[reason]}",
    )  # fmt: skip
    change = change.plus(put(db, *key, high, 0, pack_result(gap)))
    return Shed(flow, reason, len(run), rows, change)


def _gap_before(db: sqlite3.Connection, key: StreamKey, above: int, low: int, reason: str) -> dict[str, Any] | None:
    """The gap of the same reason right before number `low`, if it has not left either, and is whole."""
    query = (
        "SELECT payload, digest FROM outbox WHERE flow = ? AND epoch = ? AND stream = ? AND sequence = ? AND rows = 0"
    )
    found = db.execute(query, (*key, low - 1)).fetchone() if low - 1 > above else None
    if not found or not OutboxEntry(key[1], key[2], low - 1, *found).is_whole:
        return None
    plain = msgspec.msgpack.decode(expanded_untrusted(found[0]), type=dict[str, Any], strict=False)
    return plain if plain.get("kind") == "gap" and plain.get("reason") == reason else None
