"""A card that rots: a flow goes on from its last checkpoint that is whole, and says what is missing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from edgert.central.landing.lineage import Opening, counted
from edgert.core.results.results import GapBatch, OpenBatch, RowsBatch
from edgert.runtime.checkpoint.packing import pack_state
from edgert.store.database import Database
from gateway.status.conditions import conditions
from tests.gateway.whole_gateway import Gateway, document
from tests.gateway.worlds import results, rot, status_of, with_messages
from tests.waiting import in_loop


def rot_queue(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE queue SET blob = ? WHERE flow = 'f'", (b"nothing that was packed",))


def in_fleet(database: Database) -> int:
    """Messages that the central side counts, when all that waits in the outbox has landed."""
    batches = results(database)
    openings = [Opening(b.gateway, b.epoch, b.parent, b.cut) for b in batches if isinstance(b, OpenBatch)]
    valid = counted(openings)
    total = 0
    for batch in batches:
        key = (batch.gateway, batch.epoch)
        if isinstance(batch, RowsBatch) and key in valid:
            cut = valid[key]
            if cut is None or batch.sequence <= cut.get(batch.stream, 0):
                total += sum(row[-1] for row in batch.rows)
    return total


async def ended(gateway: Gateway) -> int:
    """Messages that the fleet has counted at the end."""
    assert await gateway.checkpoint()
    await gateway.flows.remove("f")
    total = in_fleet(gateway.database)
    gateway.crash()
    return total


@in_loop
async def test_it_goes_on_from_the_checkpoint_before_and_takes_what_comes_again(tmp_path: Path) -> None:
    path = tmp_path / "db"
    await with_messages(path)
    rot(path, "state")
    gateway = Gateway(path)
    assert sorted(gateway.flows.runs) == ["f", "other"]
    assert gateway.flows.failed == {}
    assert "messages up to number 4 of the 5" in gateway.flows.gaps["f"]
    gateway.feed(6, 6.0, dup=True)
    assert gateway.ingest.inbox.due() == []
    assert await gateway.checkpoint()
    (gap,) = [b for b in results(gateway.database) if isinstance(b, GapBatch)]
    assert (gap.reason, gap.rows) == ("checkpoint damaged", None)
    assert gap.text == gateway.flows.gaps["f"]
    (told,) = [c for c in conditions(status_of(gateway).object()) if (c.part, c.name) == ("flow", "f")]
    assert told.level in ("warning", "bad")
    assert gap.text in told.reason
    assert await ended(gateway) == 5, "without message 5"


@in_loop
async def test_what_the_broker_never_heard_of_is_taken_again(tmp_path: Path) -> None:
    """Message 5 was committed, and its PUBACK got lost: `other` has it, `f` went back behind it."""
    path = tmp_path / "db"
    await with_messages(path)
    rot(path, "state")
    gateway = Gateway(path)
    gateway.feed(5, 5.0, dup=True)
    gateway.feed(6, 6.0, dup=True)
    counters = gateway.ingest.inbox.counters
    assert (counters.redelivered, counters.ambiguous) == (1, 1), "`other` skips what may have been a new one"
    assert await ended(gateway) == 6


@in_loop
@pytest.mark.parametrize("first", [0, 1, 2, 3, 4])
async def test_results_made_after_that_checkpoint_do_not_count(tmp_path: Path, first: int) -> None:
    """The third message ends the first window, whose contribution leaves; who goes back behind it makes it again."""
    path = tmp_path / "db"
    gateway = Gateway(path)
    await gateway.flows.deploy(document(), "mqtt")
    for number, time in enumerate([1.0, 2.0, 35.0, 36.0, 37.0], 1):
        gateway.clock.advance(10.0)
        gateway.feed(number, time)
        assert await gateway.checkpoint()
    assert gateway.shipped() == 2
    gateway.crash()
    rot(path, "state", [first])
    gateway = Gateway(path)
    gateway.feed(6, 38.0)
    # with nothing whole to go back to, the window that left is kept, and what was open is missing
    assert await ended(gateway) == (first + 1 if first else 2 + 1)


@in_loop
async def test_a_snapshot_takes_the_mark_of_the_last_delta_in_it(tmp_path: Path) -> None:
    path = tmp_path / "db"
    await with_messages(path, merged=True)
    rot(path, "state", [1])
    gateway = Gateway(path)
    assert "messages up to number 2 of the 5" in gateway.flows.gaps["f"]
    gateway.feed(6, 6.0, dup=True)
    assert await ended(gateway) == 3


@in_loop
async def test_without_a_snapshot_it_begins_with_nothing_behind_what_it_had_taken(tmp_path: Path) -> None:
    path = tmp_path / "db"
    await with_messages(path, merged=True)
    rot(path, "state", [0])
    gateway = Gateway(path)
    assert "open windows" in gateway.flows.gaps["f"]
    gateway.feed(5, 5.0, dup=True)
    gateway.feed(6, 6.0, dup=True)
    assert await ended(gateway) == 1


@in_loop
async def test_damaged_queues_cost_what_waited_in_them(tmp_path: Path) -> None:
    path = tmp_path / "db"
    await with_messages(path)
    rot_queue(path)
    gateway = Gateway(path)
    assert "what waited in its queues is missing" in gateway.flows.gaps["f"]
    gateway.feed(5, 5.0, dup=True)
    gateway.feed(6, 6.0, dup=True)
    assert await ended(gateway) == 6


@in_loop
async def test_damaged_input_behind_whole_queues_takes_nobody_back(tmp_path: Path) -> None:
    path = tmp_path / "db"
    await with_messages(path)
    with sqlite3.connect(path) as db:
        db.execute("INSERT OR REPLACE INTO queue VALUES ('f', ?)", (pack_state({}),))
        db.execute("INSERT INTO spill VALUES ('f', 1, 100, 1, ?)", (b"nothing that was packed",))
        db.execute("INSERT INTO spilled SELECT name, position, missing, 0 FROM flow WHERE name = 'f'")
    gateway = Gateway(path)
    assert "what waited in its queues is missing" in gateway.flows.gaps["f"]
    gateway.feed(6, 6.0, dup=True)
    assert await ended(gateway) == 6


@in_loop
async def test_it_may_happen_again(tmp_path: Path) -> None:
    path = tmp_path / "db"
    await with_messages(path)
    epochs = []
    for _ in range(3):
        rot(path, "state")
        gateway = Gateway(path)
        epochs.append(gateway.flows.runs["f"].epoch)
        gateway.crash()
    assert epochs == sorted(set(epochs))
    gateway = Gateway(path)
    assert gateway.flows.gaps == {}, "it is said once"
    gateway.feed(6, 6.0, dup=True)
    assert gateway.ingest.inbox.table.sent[6] != gateway.ingest.inbox.table.sent[5], "5 may have been acknowledged"
    assert await ended(gateway) == 3


@in_loop
async def test_state_of_an_older_version_has_nothing_to_go_back_to(tmp_path: Path) -> None:
    path = tmp_path / "db"
    await with_messages(path)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE state SET position = NULL, missing = NULL, epoch = NULL, cut = NULL")
    rot(path, "state")
    gateway = Gateway(path)
    gateway.feed(6, 6.0, dup=True)
    assert await ended(gateway) == 1
