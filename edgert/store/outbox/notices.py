"""Notices of a flow in the tables besides its results, inside a transaction of the one database: input that it missed,
and rows that it dropped. Only a flow that ships says anything: of another no epoch is opened there.

Each is a batch without rows, so that it neither makes way in a full outbox nor has to find room there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from edgert.core.results.results import MOST_DROPS, Drop, DropsBatch, pack_result
from edgert.store.outbox import outbox
from edgert.store.outbox.outbox import OutboxSize


def put(db: sqlite3.Connection, gateway: str, flow: str, gap: str = "", drops: Sequence[Drop] = ()) -> OutboxSize:
    """With the next numbers of the flow's newest stream. `gap`: in words; empty: nothing is missing. Returns how the
    outbox changes."""
    change = OutboxSize(0, 0, 0)
    (epoch,) = db.execute("SELECT epoch FROM flow WHERE name = ?", (flow,)).fetchone()
    if not db.execute("SELECT 1 FROM opening WHERE flow = ? AND epoch = ?", (flow, epoch)).fetchone():
        return change
    if gap:
        change = change.plus(outbox.put_gap(db, gateway, flow, epoch, outbox.MISSED, gap))
    stream = outbox.current(db, flow, epoch)
    for at in range(0, len(drops), MOST_DROPS):
        sequence = outbox.last(db, flow, epoch, stream) + 1
        batch = DropsBatch(
            gateway=gateway, flow=flow, epoch=epoch, stream=stream, sequence=sequence,
            flow_version=outbox.version(db, flow, epoch), drops=drops[at : at + MOST_DROPS],
        )  # fmt: skip
        change = change.plus(outbox.put(db, flow, epoch, stream, sequence, 0, pack_result(batch)))
    return change
