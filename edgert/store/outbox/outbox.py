"""The outbox inside a transaction of the one database: what is put there, freed, and moved into another epoch.

Each function that writes returns how the outbox's size changes; what waits per stream is counted in `stream`, in the
same transaction, so that neither a start nor a turn of the uplink has to look through the outbox itself.

Results leave in the newest stream of their epoch. After a long outage another one is opened, so that what is made from
then on need not queue behind what waits: **at most two streams of an epoch hold something**, the newest and the one
before it, and no number of a stream is used again. Whoever asks the tables for the streams of an epoch counts on that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import xxhash

from edgert.core.compression import compressed, expanded_untrusted
from edgert.core.results.result_schema import Schema
from edgert.core.results.results import MOST_DAYS, MOST_STREAMS, GapBatch, OpenBatch, RowsBatch, day_of, pack_result
from edgert.store.state.records import StoredFlow

FIRST = 0
"""An epoch's first stream: it begins with the opening batch."""
MOVED_AT_ONCE = 32
"""Batches in memory while an epoch is moved: some 3 MB."""
BATCH_ROWS = 1_000
"""Contributions per result batch at the most: keeps one MQTT message around 100 kB."""
BATCH_BYTES = 256 * 1024
"""Most bytes of sketches and texts in a batch, but for a single row that has more."""
ROW_BYTES = 8 << 20
"""Most bytes of sketches and texts in one row. The collector takes no message beyond 16 MB, so that a larger row would
hold up its stream for good."""
WENT_BACK = "database went back in time"
MISSED = "input missed"
LOST = "lost by the tables"
TOO_LARGE = "row too large"


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    epoch: int
    stream: int
    sequence: int
    payload: bytes
    digest: int | None
    """Digest of the payload when it was put; None: the column is damaged."""

    @property
    def is_whole(self) -> bool:
        return self.digest == digest(self.payload)


def digest(payload: bytes) -> int:
    """Returns a digest of the payload, as an integer that SQLite takes."""
    return xxhash.xxh3_64_intdigest(payload) - 2**63


@dataclass(frozen=True, slots=True)
class OutboxSize:
    batches: int
    rows: int
    bytes: int

    def plus(self, change: OutboxSize) -> OutboxSize:
        return OutboxSize(self.batches + change.batches, self.rows + change.rows, self.bytes + change.bytes)


def last(db: sqlite3.Connection, flow: str, epoch: int, stream: int) -> int:
    """The last number given in a stream."""
    query = "SELECT sequence FROM stream WHERE flow = ? AND epoch = ? AND stream = ?"
    found = db.execute(query, (flow, epoch, stream)).fetchone()
    return int(found[0]) if found else 0


def last_of_all(db: sqlite3.Connection, flow: str, epoch: int) -> dict[int, int]:
    """The last number given in each stream of an epoch."""
    query = "SELECT stream, sequence FROM stream WHERE flow = ? AND epoch = ?"
    return dict(db.execute(query, (flow, epoch)).fetchall())


def waiting(db: sqlite3.Connection) -> list[tuple[tuple[str, int, int], bool]]:
    """See `Database.outbox_streams`."""
    query = (
        "SELECT flow, epoch, stream, NOT EXISTS (SELECT 1 FROM stream AS later WHERE later.flow = stream.flow "
        "AND (later.epoch, later.stream) > (stream.epoch, stream.stream)) "
        "FROM stream WHERE batches > 0 ORDER BY flow, epoch, stream"
    )
    return [((flow, epoch, stream), bool(newest)) for flow, epoch, stream, newest in db.execute(query).fetchall()]


def rows_waiting(db: sqlite3.Connection) -> dict[str, int]:
    """Rows that wait in the outbox, by flow."""
    return dict(db.execute("SELECT flow, sum(rows) FROM stream WHERE batches > 0 GROUP BY flow").fetchall())


def current(db: sqlite3.Connection, flow: str, epoch: int) -> int:
    """The stream in which results of an epoch leave now: its newest."""
    query = "SELECT max(stream) FROM stream WHERE flow = ? AND epoch = ?"
    return int(db.execute(query, (flow, epoch)).fetchone()[0] or FIRST)


def has_room(db: sqlite3.Connection, flow: str, epoch: int) -> bool:
    """True if the epoch may have one more stream."""
    return current(db, flow, epoch) + 1 < MOST_STREAMS


def is_behind(db: sqlite3.Connection, flow: str, epoch: int, backlog: int) -> bool:
    """True if more than `backlog` batches wait in the current stream and none in another of its epoch."""
    query = "SELECT stream, batches FROM stream WHERE flow = ? AND epoch = ? ORDER BY stream DESC"
    waiting = [batches for _, batches in db.execute(query, (flow, epoch)).fetchall()]
    return bool(waiting) and waiting[0] > backlog and not any(waiting[1:])


def open_stream(db: sqlite3.Connection, flow: str, epoch: int) -> None:
    """Results leave in another stream from now on."""
    query = "INSERT INTO stream (flow, epoch, stream, sequence, batches, rows, bytes) VALUES (?, ?, ?, 0, 0, 0, 0)"
    db.execute(query, (flow, epoch, current(db, flow, epoch) + 1))


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much a result batch holds at most."""

    rows: int = BATCH_ROWS
    bytes: int = BATCH_BYTES
    """Most bytes of sketches and texts in a batch, but for a single row that has more."""


def in_batches(rows: Sequence[Sequence[Any]], most: BatchLimits = BatchLimits()) -> Iterator[Sequence[Sequence[Any]]]:
    """Contributions cut into result batches, each with windows of at most `MOST_DAYS` days."""
    if len({day_of(row[0]) for row in rows}) > MOST_DAYS:
        rows = sorted(rows, key=lambda row: row[0])  # a batch for so many days, not one for so many rows
    begin = size = 0
    days: set[int] = set()
    for at, row in enumerate(rows):
        long, day = _long_bytes(row), day_of(row[0])
        size += long
        days.add(day)
        if at > begin and (at - begin == most.rows or size > most.bytes or len(days) > MOST_DAYS):
            yield rows[begin:at]
            begin, size, days = at, long, {day}
    if begin < len(rows):
        yield rows[begin:]


def _long_bytes(row: Sequence[Any]) -> int:
    """Returns the bytes of texts and sketches in a row."""
    size = 0
    for value in row:
        if type(value) is str:
            size += len(value) if value.isascii() else len(value.encode())
        elif type(value) is bytes:
            size += len(value)
    return size


def put(
    db: sqlite3.Connection, flow: str, epoch: int, stream: int, sequence: int, rows: int, payload: bytes,
    at: float = 0.0,
) -> OutboxSize:  # fmt: skip
    """One batch: with the stream's next number, or with one that was freed. `at`: see the column `put_at`."""
    values = (flow, epoch, stream, sequence, rows, payload, at, digest(payload))
    db.execute("INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
    db.execute(
        "INSERT INTO stream (flow, epoch, stream, sequence, batches, rows, bytes) VALUES (?, ?, ?, ?, 1, ?, ?) "
        "ON CONFLICT DO UPDATE SET sequence = max(sequence, excluded.sequence), batches = batches + 1, "
        "rows = rows + excluded.rows, bytes = bytes + excluded.bytes",
        (flow, epoch, stream, sequence, rows, len(payload)),
    )
    return OutboxSize(1, rows, len(payload))


def put_rows(
    db: sqlite3.Connection,
    gateway: str,
    flow: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    at: float,
    most: BatchLimits = BatchLimits(),
) -> tuple[tuple[str, int, int], int, OutboxSize, int]:
    """Contributions, in batches, with the next numbers of the newest stream of their flow; a gap in the place of a row
    that no collector takes. Returns that stream (flow, epoch, stream), the first of these numbers, the change, and how
    many rows were too large."""
    epoch, version = db.execute("SELECT epoch, version FROM flow WHERE name = ?", (flow,)).fetchone()
    stream = current(db, flow, epoch)
    before = last(db, flow, epoch, stream)
    change, too_large = OutboxSize(0, 0, 0), 0
    for sequence, some in enumerate(in_batches(rows, most), before + 1):
        number: dict[str, Any] = {
            "gateway": gateway, "flow": flow, "epoch": epoch, "stream": stream, "sequence": sequence,
            "flow_version": version,
        }  # fmt: skip
        if len(some) == 1 and (size := _long_bytes(some[0])) > ROW_BYTES:
            text = f"a result row has {size:,} bytes of texts and sketches, and {ROW_BYTES:,} can be sent at most"
            gap = GapBatch(**number, reason=TOO_LARGE, rows=1, text=text)
            change = change.plus(put(db, flow, epoch, stream, sequence, 0, pack_result(gap), at))
            too_large += 1
            continue
        batch = RowsBatch(**number, columns=columns, rows=some)
        change = change.plus(put(db, flow, epoch, stream, sequence, len(some), pack_result(batch), at))
    return (flow, epoch, stream), before + 1, change, too_large


def free(db: sqlite3.Connection, flow: str, epoch: int, stream: int, low: int, high: int) -> OutboxSize:
    """Deletes the batches of one stream with numbers above `low` and up to `high`."""
    query = (
        "DELETE FROM outbox WHERE flow = ? AND epoch = ? AND stream = ? AND sequence > ? AND sequence <= ? "
        "RETURNING rows, length(payload)"
    )
    gone = db.execute(query, (flow, epoch, stream, low, high)).fetchall()
    change = OutboxSize(-len(gone), -sum(rows for rows, _ in gone), -sum(size for _, size in gone))
    if gone:
        query = (
            "UPDATE stream SET batches = batches + ?, rows = rows + ?, bytes = bytes + ? "
            "WHERE flow = ? AND epoch = ? AND stream = ?"
        )
        db.execute(query, (change.batches, change.rows, change.bytes, flow, epoch, stream))
    return change


def put_opening(db: sqlite3.Connection, flow: str, epoch: int, payload: bytes) -> OutboxSize:
    """The first batch of an epoch, kept for good: an epoch that goes on from this one opens with the same schema."""
    db.execute("INSERT INTO opening VALUES (?, ?, ?)", (flow, epoch, payload))
    return put(db, flow, epoch, FIRST, 1, 0, payload)


def open_epoch(db: sqlite3.Connection, gateway: str, flow: StoredFlow, schema: Schema) -> OutboxSize:
    """Puts the opening of the epoch in which a flow is to ship. Its parent is the newest in which it did."""
    (parent,) = db.execute("SELECT max(epoch) FROM stream WHERE flow = ?", (flow.name,)).fetchone()
    opened = OpenBatch(
        gateway=gateway, flow=flow.name, epoch=flow.epoch, stream=FIRST, sequence=1, flow_version=flow.version,
        schema=schema, parent=parent, cut={} if parent is None else last_of_all(db, flow.name, parent),
    )  # fmt: skip
    return put_opening(db, flow.name, flow.epoch, pack_result(opened))


class _VersionOpening(msgspec.Struct):
    flow_version: int


def version(db: sqlite3.Connection, flow: str, epoch: int) -> int:
    """With which a flow ships in an epoch; where the opening that says so is damaged, its version of now: a gap that
    cannot be put would hold up what is put with it."""
    query = "SELECT payload FROM opening WHERE flow = ? AND epoch = ?"
    (raw,) = db.execute(query, (flow, epoch)).fetchone()
    try:
        return msgspec.msgpack.decode(raw, type=_VersionOpening).flow_version
    except msgspec.MsgspecError:
        return int(db.execute("SELECT version FROM flow WHERE name = ?", (flow,)).fetchone()[0])


def put_gap(db: sqlite3.Connection, gateway: str, flow: str, epoch: int, reason: str, text: str) -> OutboxSize:
    """Something is missing, nobody knows how many rows: with the next number of the epoch's newest stream."""
    stream = current(db, flow, epoch)
    sequence = last(db, flow, epoch, stream) + 1
    batch = GapBatch(
        gateway=gateway, flow=flow, epoch=epoch, stream=stream, sequence=sequence,
        flow_version=version(db, flow, epoch), reason=reason, text=text,
    )  # fmt: skip
    return put(db, flow, epoch, stream, sequence, 0, pack_result(batch))


def fill(
    db: sqlite3.Connection, gateway: str, flow: str, epoch: int, stream: int, landed: int
) -> tuple[int, OutboxSize]:
    """The tables have a stream up to `landed`: what comes next and is here no more is put again, if it is the opening,
    and else a gap in its place. Returns how many batches that stands for, too. The stream's first batch is whole."""
    query = "SELECT sequence, payload FROM outbox WHERE flow = ? AND epoch = ? AND stream = ? ORDER BY sequence LIMIT 1"
    first = last(db, flow, epoch, stream) + 1
    if waiting := db.execute(query, (flow, epoch, stream)).fetchone():
        plain = msgspec.msgpack.decode(expanded_untrusted(waiting[1]), strict=False)
        first = waiting[0] + 1 - plain.get("numbers", 1)
    change, low = OutboxSize(0, 0, 0), landed + 1
    query = "SELECT payload FROM opening WHERE flow = ? AND epoch = ?"
    found = db.execute(query, (flow, epoch)).fetchone()
    if low >= first or not found:
        return 0, change
    if (stream, low) == (FIRST, 1):
        change, low = change.plus(put(db, flow, epoch, FIRST, 1, 0, found[0])), 2
    if low < first:
        batch = GapBatch(
            gateway=gateway, flow=flow, epoch=epoch, stream=stream, sequence=first - 1,
            flow_version=version(db, flow, epoch), reason=LOST, numbers=first - low,
            text=f"batches {low} to {first - 1} had landed and been acknowledged, and then the tables lacked them",
        )  # fmt: skip
        change = change.plus(put(db, flow, epoch, stream, first - 1, 0, pack_result(batch)))
    return first - landed - 1, change


def reopen(
    db: sqlite3.Connection, flow: str, old: int, new: int, parent: int, cut: Mapping[int, int],
    kept: Mapping[int, int], gap: str = "", reason: str = WENT_BACK, upto: Mapping[int, int] | None = None,
) -> OutboxSize:  # fmt: skip
    """Opens epoch `new` with the schema of `old` and moves into it, in order and numbered anew, what `old` has in the
    outbox above the number `kept` of its stream; its streams, at most two, are the new one's first. What is above
    `upto` (None: nothing) goes nowhere: it counts no more. With `gap`, the second batch says so. `new` counts as
    departed."""
    query = "SELECT payload FROM opening WHERE flow = ? AND epoch = ?"
    (raw,) = db.execute(query, (flow, old)).fetchone()
    opening = {**msgspec.msgpack.decode(raw, strict=False), "epoch": new, "parent": parent, "cut": dict(cut)}
    change = put_opening(db, flow, new, msgspec.msgpack.encode(opening))
    if gap:
        change = change.plus(put_gap(db, opening["gateway"], flow, new, reason, gap))
    query = "SELECT stream FROM stream WHERE flow = ? AND epoch = ? AND batches > 0 ORDER BY stream"
    for at, (stream,) in enumerate(db.execute(query, (flow, old)).fetchall()):
        after = kept.get(stream, 0)
        if upto is not None:
            change = change.plus(
                free(db, flow, old, stream, max(after, upto.get(stream, 0)), last(db, flow, old, stream))
            )
        change = change.plus(_move(db, flow, (old, stream), (new, FIRST + at), after))
    db.execute("UPDATE stream SET departed = NULL WHERE flow = ? AND epoch = ?", (flow, new))
    return change


def _move(db: sqlite3.Connection, flow: str, old: tuple[int, int], new: tuple[int, int], after: int) -> OutboxSize:
    """One stream (epoch, stream) to another, a few batches at a time: an outbox may be larger than the memory."""
    query = (
        "SELECT sequence, rows, payload, put_at FROM outbox "
        "WHERE flow = ? AND epoch = ? AND stream = ? AND sequence > ? ORDER BY sequence LIMIT ?"
    )
    change, number, at = OutboxSize(0, 0, 0), last(db, flow, *new), after
    while entries := db.execute(query, (flow, *old, at, MOVED_AT_ONCE)).fetchall():
        for _, rows, payload, put_at in entries:
            plain = msgspec.msgpack.decode(expanded_untrusted(payload), strict=False)
            if plain["kind"] == "open":
                continue
            number += 1
            numbers = {"numbers": 1} if plain["kind"] == "gap" else {}
            moved = {**plain, "epoch": new[0], "stream": new[1], "sequence": number, **numbers}
            payload = compressed(msgspec.msgpack.encode(moved))
            change = change.plus(put(db, flow, *new, number, rows, payload, put_at))
        at = entries[-1][0]
        change = change.plus(free(db, flow, *old, after, at))
    return change
