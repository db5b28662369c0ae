"""The gateway that owns the database: the results in it are numbered for one gateway, and the tables take them from no
other."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from edgert.core.errors import StoreError, show

KEY = "gateway"
"""In `meta`."""


class _GatewayOpening(msgspec.Struct):
    gateway: str


def claim(db: sqlite3.Connection, gateway: str, path: Path) -> None:
    """Notes in a transaction of the database whose it is. Raises `StoreError` if it is another gateway's: what waits
    in it, and all that its flows would ship, would be refused by the collector for good."""
    found = db.execute("SELECT value FROM meta WHERE key = ?", (KEY,)).fetchone()
    if found == (gateway,):
        return
    # a name that is damaged or gone is put right by the openings
    owners = _of_openings(db) | ({found[0]} if found else set())
    if owners and gateway not in owners:
        names = ", ".join(sorted(show(owner) for owner in owners))
        raise StoreError(
            f"the database {path} belongs to gateway {names}, and this one is {gateway!r} (gateway.id was changed, or "
            "is not set, and this is another machine): set gateway.id back, or give this one a gateway.data_dir of its "
            "own"
        )
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (KEY, gateway))


def _of_openings(db: sqlite3.Connection) -> set[str]:
    """The gateways that stand in the opening batches, as far as those can be read."""
    found: set[str] = set()
    for (raw,) in db.execute("SELECT payload FROM opening"):
        try:
            found.add(msgspec.msgpack.decode(raw, type=_GatewayOpening).gateway)
        except msgspec.MsgspecError:
            continue
    return found
