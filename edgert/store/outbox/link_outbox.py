"""Batches on their way to other gateways: inside a transaction of the one database.

A stream is (flow, gateway). A checkpoint puts its batches here and numbers them (epoch, sequence) in its transaction;
they are sent after that, never renumbered, and deleted when the gateway there has committed them. The epoch is the
flow's: a flow that goes back to an older checkpoint, or begins anew, opens a new one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

import msgspec

from edgert.links.messages import NOTHING, Number
from edgert.links.protocol import Stored


def put(db: sqlite3.Connection, flow: str, batches: Sequence[tuple[str, int, bytes]]) -> None:
    """Numbers (gateway, rows, payload) behind what was given before."""
    (epoch,) = db.execute("SELECT epoch FROM flow WHERE name = ?", (flow,)).fetchone()
    for gateway, rows, payload in batches:
        newest = last(db, flow, gateway)
        number = Number(newest.epoch, newest.sequence + 1) if newest.epoch >= epoch else Number(epoch, 1)
        db.execute("INSERT OR REPLACE INTO link_stream VALUES (?, ?, ?, ?)", (flow, gateway, *number))
        db.execute("INSERT INTO link_outbox VALUES (?, ?, ?, ?, ?, ?)", (flow, gateway, *number, rows, payload))


def last(db: sqlite3.Connection, flow: str, gateway: str) -> Number:
    """The greatest number ever given in a stream."""
    query = "SELECT epoch, sequence FROM link_stream WHERE flow = ? AND gateway = ?"
    found = db.execute(query, (flow, gateway)).fetchone()
    return Number(*found) if found else NOTHING


def streams(db: sqlite3.Connection) -> dict[tuple[str, str], Number]:
    """(flow, gateway) → the greatest number given, of every stream that ever had a batch."""
    query = "SELECT flow, gateway, epoch, sequence FROM link_stream ORDER BY flow, gateway"
    return {(flow, gateway): Number(epoch, sequence) for flow, gateway, epoch, sequence in db.execute(query)}


def position(db: sqlite3.Connection, flow: str, origin: str) -> Number:
    """The last number from another gateway that the flow's last commit covers."""
    found = db.execute("SELECT links FROM flow WHERE name = ?", (flow,)).fetchone()
    links = msgspec.msgpack.decode(found[0], type=dict[str, tuple[int, int]]) if found else {}
    return Number(*links.get(origin, NOTHING))


def begin_epoch(db: sqlite3.Connection, flow: str, gateway: str, epoch: int) -> None:
    """The next batch of the stream is the first of a later epoch."""
    db.execute("INSERT OR REPLACE INTO link_stream VALUES (?, ?, ?, 0)", (flow, gateway, epoch))


def pending(db: sqlite3.Connection, flow: str, gateway: str, after: Number, limit_bytes: int) -> list[Stored]:
    """The batches behind the number `after`, in order: so many bytes of them, and one batch more."""
    query = (
        "SELECT epoch, sequence, payload FROM link_outbox "
        "WHERE flow = ? AND gateway = ? AND (epoch, sequence) > (?, ?) "
        "ORDER BY epoch, sequence"
    )
    found: list[Stored] = []
    for row in db.execute(query, (flow, gateway, *after)):
        found.append(Stored(*row))
        limit_bytes -= len(row[2])
        if limit_bytes < 0:
            break
    return found


def delete_to(db: sqlite3.Connection, flow: str, gateway: str, number: Number) -> None:
    """The gateway has committed everything up to `number`."""
    query = "DELETE FROM link_outbox WHERE flow = ? AND gateway = ? AND (epoch, sequence) <= (?, ?)"
    db.execute(query, (flow, gateway, *number))


def total(db: sqlite3.Connection) -> int:
    """Bytes of all that waits."""
    return int(db.execute("SELECT coalesce(sum(length(payload)), 0) FROM link_outbox").fetchone()[0])


def make_room(db: sqlite3.Connection, need: int, keep: Collection[str] = ()) -> list[tuple[str, str, int, int]]:
    """Deletes the oldest batches of the stream that holds the most, again and again, until `need` bytes are free or
    only flows of `keep` have batches. Returns (flow, gateway, batches, rows) of what made way. A batch that had been
    sent may be among it: the receiver has it then, or counts a gap."""
    shed: dict[tuple[str, str], list[int]] = {}
    held = {(flow, gateway): size for flow, gateway, _, _, size in sizes(db) if flow not in keep}
    while need > 0 and held:
        flow, gateway = largest = max(held, key=lambda stream: (held[stream], stream))
        goal = max(0, held[largest] - sorted(held.values())[-2]) if len(held) > 1 else need
        freed, batches, rows = _delete_oldest(db, flow, gateway, max(1, min(need, goal)))
        need, held[largest] = need - freed, held[largest] - freed
        if not batches or held[largest] <= 0:
            del held[largest]
        counts = shed.setdefault(largest, [0, 0])
        counts[0], counts[1] = counts[0] + batches, counts[1] + rows
    return [(*stream, batches, rows) for stream, (batches, rows) in shed.items() if batches]


def _delete_oldest(db: sqlite3.Connection, flow: str, gateway: str, need: int) -> tuple[int, int, int]:
    """Deletes at least `need` bytes of one stream; returns (bytes, batches, rows)."""
    query = (
        "SELECT epoch, sequence, rows, length(payload) FROM link_outbox WHERE flow = ? AND gateway = ? "
        "ORDER BY epoch, sequence"
    )
    last_one, freed, batches, rows = NOTHING, 0, 0, 0
    for epoch, sequence, contained, size in db.execute(query, (flow, gateway)):
        last_one, freed, batches, rows = Number(epoch, sequence), freed + size, batches + 1, rows + contained
        if freed >= need:
            break
    delete_to(db, flow, gateway, last_one)
    return freed, batches, rows


def forget(db: sqlite3.Connection, flow: str) -> None:
    """Forgets waiting batches of a flow: they go another way."""
    db.execute("DELETE FROM link_outbox WHERE flow = ?", (flow,))


def sizes(db: sqlite3.Connection) -> list[tuple[str, str, int, int, int]]:
    """(flow, gateway, batches, rows, bytes) of what waits."""
    query = (
        "SELECT flow, gateway, count(*), sum(rows), sum(length(payload)) FROM link_outbox "
        "GROUP BY flow, gateway ORDER BY flow, gateway"
    )
    return db.execute(query).fetchall()
