"""What becomes of a card while the gateway is off: somebody copies it, puts a copy back, or it rots."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager, closing
from unittest import mock

from edgert.central.landing.lineage import Opening
from edgert.core.errors import StoreError
from edgert.core.results.results import OpenBatch, RowsBatch, unpack_result_untrusted
from edgert.store.database import Database
from tests.protocol.central_side import number_of
from tests.protocol.memory_table import Row
from tests.protocol.state import State


def note(world: State) -> None:
    """What a fallback to where the flows stand now would have."""
    assert world.board
    database, ledger = world.board.database, world.ledger
    for name, covered in world.covered.items():
        if not database.queue(name) and not database.spilled(name):
            ledger.processed[name] = {*ledger.kept[name]}
        covered.setdefault(database.last_state(name), ({*ledger.processed[name]}, {*ledger.delivered[name]}))


def back_up(world: State) -> None:
    path = world.folder / f"backup{len(world.backups)}"
    shutil.copy(world.path, path)
    kept = {name: {*uids} for name, uids in world.ledger.kept.items()}
    covered = {name: dict(its) for name, its in world.covered.items()}
    world.backups.append((path, kept, covered, world.versions.copy()))


def go_back(world: State) -> None:
    path, kept, covered, versions = world.draw.choice(world.backups)
    world.say(f"goes back to {path.name}")
    world.went_back = world.ledger.went_back = True
    for old in world.folder.glob("gateway.db*"):
        old.unlink()
    shutil.copy(path, world.path)
    for name in world.flows:
        may_repeat = kept[name] - _left_for_good(world, name, kept[name])
        elsewhere = versions[name] != world.versions[name]
        world.ledger.card_is_older(name, kept[name], world.broker.holds(), may_repeat if elsewhere else None)
        world.covered[name] = dict(covered[name])
        world.versions[name] += 1  # it opens an epoch, when the tables have newer ones


def full_disk() -> AbstractContextManager[object]:
    """No fallback can be written: then a gateway that needs one does not start."""

    def full(*_: object) -> None:
        raise StoreError("disk full")

    return mock.patch.object(Database, "fall_back", full)


def _shipped(world: State, flow: str) -> set[int]:
    """What has been counted in results that stay, whether they have landed or wait in the outbox. Of a card that is
    older than the tables nothing is certain."""
    made, waiting, openings = _on_card(world, flow)
    if any(number > made.get(stream, 0) for stream, number in world.central.landed(flow).items()):
        return set()
    counts: Counter[str] = Counter()
    for (_, key), n in world.central.counted(flow, waiting, openings).items():
        counts[key] += n
    held = world.ledger.held(flow, world.broker.holds())
    return _of_keys(world, sorted(world.ledger.kept[flow], key=lambda uid: uid in held), counts)


def _left_for_good(world: State, flow: str, kept: set[int]) -> set[int]:
    """What the card has counted in results that have landed and are not on it any more."""
    made, waiting, _ = _on_card(world, flow)
    still = {number_of(row) for row in waiting}
    counts: Counter[str] = Counter()
    for row in world.central.rows(flow):
        if row["sequence"] <= made.get((row["epoch"], row["stream"]), 0) and number_of(row) not in still:
            counts[row["u"]] += row["n"]
    return _of_keys(world, sorted(kept), counts)


def _on_card(world: State, flow: str) -> tuple[dict[tuple[int, int], int], list[Row], list[Opening]]:
    """The last number of each stream, contributions in the outbox, and what all epochs were opened with."""
    waiting, openings = [], []
    with closing(sqlite3.connect(world.path)) as db:
        query = "SELECT epoch, stream, sequence FROM stream WHERE flow = ?"
        made = {(epoch, stream): sequence for epoch, stream, sequence in db.execute(query, (flow,))}
        for table in ("opening", "outbox"):
            for (payload,) in db.execute(f"SELECT payload FROM {table} WHERE flow = ?", (flow,)):
                batch = unpack_result_untrusted(payload)
                if isinstance(batch, OpenBatch):
                    openings.append(Opening(batch.gateway, batch.epoch, batch.parent, batch.cut))
                elif isinstance(batch, RowsBatch):
                    number = {name: getattr(batch, name) for name in ("gateway", "epoch", "stream", "sequence")}
                    rows = (dict(zip(batch.columns, row, strict=True)) for row in batch.rows)
                    waiting += [{**row, **number, "day": ""} for row in rows]
    return made, waiting, openings


def _of_keys(world: State, uids: Iterable[int], counts: Counter[str]) -> set[int]:
    """So many messages of each key (which of equal ones makes no difference), the first of `uids`."""
    found = set()
    for uid in uids:
        if counts[world.keys[uid]]:
            counts[world.keys[uid]] -= 1
            found.add(uid)
    return found


def rot(world: State, flow: str) -> None:
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
    reached = ledger.delivered[flow]
    if of_queue:
        left = ledger.processed[flow]
    elif back_to is None:
        left = _shipped(world, flow)
    else:
        left, reached = world.covered[flow].get(back_to, (set(), reached))
    ledger.behind[flow] |= reached
    ledger.card_is_older(flow, left & ledger.kept[flow], world.broker.holds())
    world.covered[flow] = {n: its for n, its in world.covered[flow].items() if back_to and n <= back_to}
