"""Tokens of retained messages by flow and filter, inside a transaction of the one database.

Another token than before says that operators of the flow have lost what they had of the retained messages of the
filter (`gateway.ingest.subscriptions`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final

import msgspec

PREFIX: Final = "look-ups/"
"""In `meta`, before the name of the flow."""
ALL: Final = ""
"""Stands for all filters that are not named."""


def put(db: sqlite3.Connection, flow: str, tokens: Mapping[str, int]) -> None:
    """Writes filter → token of a flow."""
    if tokens:
        row = (PREFIX + flow, msgspec.msgpack.encode(dict(tokens)))
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", row)
    else:
        db.execute("DELETE FROM meta WHERE key = ?", (PREFIX + flow,))


def of_all(db: sqlite3.Connection) -> dict[str, dict[str, int]]:
    """Flow → filter → token. A damaged value is left out: retained messages are asked for again then."""
    found: dict[str, dict[str, int]] = {}
    for key, value in db.execute("SELECT key, value FROM meta WHERE key LIKE ?", (PREFIX + "%",)):
        try:
            found[key.removeprefix(PREFIX)] = msgspec.msgpack.decode(value, type=dict[str, int])
        except (msgspec.MsgspecError, TypeError):
            continue
    return found
