"""What becomes of a card while the gateway is off: somebody copies it, puts a copy back, or it rots."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING
from unittest import mock

from edgert.core.errors import StoreError
from edgert.store.database import Database

if TYPE_CHECKING:
    from tests.protocol.world import World

Covered = dict[str, dict[int, tuple[set[int], set[int]]]]


def note(world: World) -> None:
    """What a fallback to where the flows stand now would have."""
    assert world.board
    database, ledger = world.board.database, world.ledger
    for name, covered in world.covered.items():
        if not database.queue(name) and not database.spilled(name):
            ledger.processed[name] = {*ledger.kept[name]}
        covered.setdefault(database.last_state(name), ({*ledger.processed[name]}, {*ledger.delivered[name]}))


def back_up(world: World) -> None:
    path = world.folder / f"backup{len(world.backups)}"
    shutil.copy(world.path, path)
    kept = {name: {*uids} for name, uids in world.ledger.kept.items()}
    covered = {name: dict(its) for name, its in world.covered.items()}
    world.backups.append((path, kept, covered, world.versions.copy()))


def go_back(world: World) -> None:
    path, kept, covered, versions = world.draw.choice(world.backups)
    world.say(f"goes back to {path.name}")
    world.went_back = True
    for old in world.folder.glob("gateway.db*"):
        old.unlink()
    shutil.copy(path, world.path)
    for name in world.flows:
        world.ledger.card_is_older(name, kept[name], world.broker.holds(), versions[name] != world.versions[name])
        world.covered[name] = dict(covered[name])


def full_disk() -> AbstractContextManager[object]:
    """No fallback can be written: then a gateway that needs one does not start."""

    def full(*_: object) -> None:
        raise StoreError("disk full")

    return mock.patch.object(Database, "fall_back", full)


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
    world.versions[flow] += 1
    world.say(f"flow {flow} rots: {table} {value} of {pieces}, back to {back_to}")
    ledger = world.ledger
    left, reached = (ledger.processed[flow], ledger.delivered[flow]) if of_queue else (set(), ledger.delivered[flow])
    if back_to is not None and not of_queue:
        left, reached = world.covered[flow].get(back_to, (left, reached))
    ledger.behind[flow] |= reached
    ledger.card_is_older(flow, left & ledger.kept[flow], world.broker.holds())
    world.covered[flow] = {n: its for n, its in world.covered[flow].items() if back_to and n <= back_to}
