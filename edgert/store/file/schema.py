"""The tables of a gateway's database, and how one written by an older version is brought up to date."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from edgert.core.errors import DamagedError, StoreError

UPGRADES: Final = (
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
    CREATE TABLE flow (
        name TEXT PRIMARY KEY,
        document TEXT NOT NULL,          -- JSON, as accepted
        version INTEGER NOT NULL,        -- counts the documents accepted under this name
        origin TEXT NOT NULL,            -- 'mqtt' or 'file'
        removed INTEGER NOT NULL,        -- 1: stopped for good; the row stays while its numbers are needed
        epoch INTEGER NOT NULL,
        position INTEGER NOT NULL,       -- arrival index
        missing BLOB NOT NULL,           -- MessagePack list of indices below it that were not taken
        links BLOB NOT NULL DEFAULT x'80',      -- MessagePack map, gateway to epoch, sequence
        plan INTEGER NOT NULL DEFAULT 0,        -- counts the changes of its assignment
        assignment BLOB NOT NULL DEFAULT x'80'  -- MessagePack map, operator to gateway, slot
    ) WITHOUT ROWID;
    CREATE TABLE state (                 -- a snapshot followed by deltas, oldest first; zstd of MessagePack
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        flow TEXT NOT NULL,
        kind TEXT NOT NULL,              -- 'snapshot' or 'delta'
        blob BLOB NOT NULL,
        position INTEGER, missing BLOB, epoch INTEGER,  -- up to `links`: of its checkpoint (`edgert.store.fallback`);
        cut BLOB,                                       -- MessagePack map, stream to last number
        links BLOB                                      -- no position: it cannot be gone back to
    );
    CREATE INDEX state_of_flow ON state (flow, number);
    CREATE TABLE queue (flow TEXT PRIMARY KEY, blob BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE page (page INTEGER PRIMARY KEY, blob BLOB NOT NULL);   -- the id table, 256 ids a page; may be zstd
    CREATE TABLE stream (                -- kept when the outbox is empty
        flow TEXT NOT NULL, epoch INTEGER NOT NULL, stream INTEGER NOT NULL,
        sequence INTEGER NOT NULL,       -- the last number given
        departed INTEGER DEFAULT 0,      -- the last number that may have left the board; NULL: any, it is being sent
        batches INTEGER NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL,    -- what waits in the outbox
        leaving INTEGER NOT NULL DEFAULT 0,     -- no number above it has left the board
        PRIMARY KEY (flow, epoch, stream)
    ) WITHOUT ROWID;
    CREATE INDEX stream_waiting ON stream (flow, epoch, stream) WHERE batches > 0;
    CREATE TABLE opening (               -- the opening batch of each epoch, as it was packed
        flow TEXT NOT NULL, epoch INTEGER NOT NULL,
        payload BLOB NOT NULL,
        PRIMARY KEY (flow, epoch)
    ) WITHOUT ROWID;
    CREATE TABLE outbox (
        flow TEXT NOT NULL, epoch INTEGER NOT NULL, stream INTEGER NOT NULL, sequence INTEGER NOT NULL,
        rows INTEGER NOT NULL,
        payload BLOB NOT NULL,
        put_at REAL NOT NULL DEFAULT 0,  -- of the time that the gateway has run, s
        digest INTEGER,                  -- of the payload, XXH3; see `edgert.store.outbox.batch_repair`
        PRIMARY KEY (flow, epoch, stream, sequence)
    ) WITHOUT ROWID;
    CREATE TABLE ahead (                 -- of flows whose results leave ahead of their checkpoints
        flow TEXT PRIMARY KEY,
        rows INTEGER NOT NULL,           -- that did since the last one
        repeated INTEGER NOT NULL        -- that had when the flow went back to one, ever: they were made again
    ) WITHOUT ROWID;
    CREATE TABLE spill (                 -- input of stuck flows since their last checkpoint
        flow TEXT NOT NULL, number INTEGER NOT NULL,
        bytes INTEGER NOT NULL,          -- as they count in queues
        messages INTEGER NOT NULL,
        blob BLOB NOT NULL,              -- as in `queue`
        PRIMARY KEY (flow, number)
    ) WITHOUT ROWID;
    CREATE TABLE spilled (               -- how far that goes
        flow TEXT PRIMARY KEY,
        position INTEGER NOT NULL, missing BLOB NOT NULL,
        lost INTEGER NOT NULL            -- messages that had no room in `spill`
    ) WITHOUT ROWID;
    CREATE TABLE link_outbox (           -- batches on their way to other gateways
        flow TEXT NOT NULL, gateway TEXT NOT NULL, epoch INTEGER NOT NULL, sequence INTEGER NOT NULL,
        rows INTEGER NOT NULL,
        payload BLOB NOT NULL,
        PRIMARY KEY (flow, gateway, epoch, sequence)
    ) WITHOUT ROWID;
    CREATE TABLE link_stream (           -- kept when nothing waits
        flow TEXT NOT NULL, gateway TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        sequence INTEGER NOT NULL,       -- the last number given
        PRIMARY KEY (flow, gateway)
    ) WITHOUT ROWID;
    CREATE TABLE plan_change (           -- of flows on several gateways
        flow TEXT PRIMARY KEY,
        fence INTEGER NOT NULL,          -- the greatest fencing number of a coordinator that was obeyed
        prepared BLOB,                   -- the part of the next plan that is to be run when it is told; or NULL
        rules BLOB,                      -- MessagePack map, the rules of the flow's placement; or NULL
        rules_fence INTEGER NOT NULL DEFAULT 0  -- of the coordinator that wrote them
    ) WITHOUT ROWID;
    """,
)
"""Entry n brings a database of version n to n + 1. Never change one that was released; add another."""


def upgrade(connection: sqlite3.Connection, upgrades: Sequence[str] = UPGRADES) -> None:
    """Brings the database to the version after the last of `upgrades`, each step in a transaction of its own.

    Raises `StoreError` for a database of a newer version: going back is refused rather than guessed. `DamagedError`
    where it has other tables or columns than its version says.
    """
    _upgrade(connection, upgrades)
    with closing(sqlite3.connect(":memory:")) as new:
        _upgrade(new, upgrades)
        wanted = _columns(new)
    found = _columns(connection)
    if lacking := wanted - found:
        table, column = min(lacking)
        raise DamagedError(f"expected the column {column} in the table {table}, got other definitions")


def _columns(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    query = "SELECT m.name, c.name FROM sqlite_schema AS m JOIN pragma_table_info(m.name) AS c WHERE m.type = 'table'"
    return set(connection.execute(query).fetchall())


def _upgrade(connection: sqlite3.Connection, upgrades: Sequence[str]) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(upgrades):
        raise StoreError(
            f"the database is of schema version {version}, this edgert knows up to {len(upgrades)}: "
            "start the newer edgert again, or move the file away to begin anew"
        )
    for at in range(version, len(upgrades)):
        connection.executescript(f"BEGIN; {upgrades[at]} PRAGMA user_version = {at + 1}; COMMIT;")
