"""Epochs that get new names, inside a transaction of the one database: the tables know newer ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

import msgspec

from edgert.store import fallback
from edgert.store.outbox import outbox
from edgert.store.outbox.outbox import OutboxSize

Cut = Mapping[int, int] | None
"""Last valid number per stream; None: all are."""


def rename(
    db: sqlite3.Connection, flow: str, renamed: Mapping[int, int], parent: int, cut: Mapping[int, int],
    kept: Mapping[int, int] | None, gap: str,
) -> OutboxSize:  # fmt: skip
    """See `Database.rebase`. What a fallback has made void neither moves nor counts again."""
    valid, known = _lineage(db, flow)
    if parent in valid:
        cut = _least(cut, valid[parent])
    elif parent in known:  # a fallback went back behind it
        parent = max(epoch for epoch in valid if epoch < parent)
        cut = valid[parent] or {}
    change = OutboxSize(0, 0, 0)
    for old, new in renamed.items():
        change = change.plus(outbox.reopen(db, flow, old, new, parent, cut, kept or {}, gap, upto=valid.get(old, {})))
        if kept is None:
            db.execute("DELETE FROM stream WHERE flow = ? AND epoch = ?", (flow, old))
            db.execute("DELETE FROM opening WHERE flow = ? AND epoch = ?", (flow, old))
        parent, cut, kept, gap = new, outbox.last_of_all(db, flow, new), None, ""
    db.execute("UPDATE flow SET epoch = ? WHERE name = ?", (parent, flow))
    fallback.forget_extent(db, flow)
    return change


def _lineage(db: sqlite3.Connection, flow: str) -> tuple[dict[int, Cut], set[int]]:
    """Returns (epoch that counts → where it ends, all epochs)."""
    found = db.execute("SELECT epoch, payload FROM opening WHERE flow = ? ORDER BY epoch", (flow,)).fetchall()
    openings = {epoch: msgspec.msgpack.decode(payload, strict=False) for epoch, payload in found}
    valid: dict[int, Cut] = {}
    at: Any = max(openings, default=None)
    cut: Cut = None
    while at in openings:
        valid[at] = cut
        at, cut = openings[at]["parent"], openings[at]["cut"]
    return valid, set(openings)


def _least(one: Mapping[int, int], other: Cut) -> Mapping[int, int]:
    return one if other is None else {stream: min(last, other.get(stream, 0)) for stream, last in one.items()}
