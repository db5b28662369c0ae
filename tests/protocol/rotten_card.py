"""A card that rots while the gateway is off."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.protocol.world import World


def rot(world: World, flow: str) -> None:
    """One byte of what is stored of a flow's state, or of its queues, is another. It goes on from the delta before
    that, or where there is none, with nothing in its windows."""
    with closing(sqlite3.connect(world.path)) as db:
        query = "SELECT number, position FROM state WHERE flow = ? ORDER BY number"
        pieces = db.execute(query, (flow,)).fetchall()
        of_queue = not pieces or world.draw.random() < 0.1
        at = world.draw.choice([len(pieces) - 1] * 3 + [world.draw.randrange(len(pieces))]) if pieces else 0
        table, key, value = ("queue", "flow", flow) if of_queue else ("state", "number", pieces[at][0])
        found = db.execute(f"SELECT blob FROM {table} WHERE {key} = ?", (value,)).fetchone()
        if not found or not found[0]:
            return
        raw = bytearray(found[0])
        raw[world.draw.randrange(len(raw))] ^= 0xFF
        db.execute(f"UPDATE {table} SET blob = ? WHERE {key} = ?", (bytes(raw), value))
        db.commit()
    back_to = next((number for number, position in reversed(pieces[:at]) if position is not None), None)
    world.version += 1  # another epoch
    world.say(f"flow {flow} rots: {table} {value} of {pieces}, back to {back_to}")
    if of_queue or back_to is None:
        world.gap[flow] |= set(world.topics)
    else:
        missing = world.broker.acknowledged - world.covered[flow].get(back_to, set())
        world.gap[flow] |= {copy.uid for copy in missing}
