"""What a flow has dropped leaves with the checkpoint that covers it, numbered like a result."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.errors import StoreError
from edgert.core.results.results import MOST_DROPS, DropsBatch, GapBatch, OpenBatch, RowsBatch, unpack_result_untrusted
from edgert.store.database import Database
from edgert.store.outbox.outbox import MISSED
from tests.store.worlds import E1, E2, E9, ROW, SCHEMA, commit, entries, everything, flow, spoil

LATE = ("minute", "late", 3)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    made = Database(tmp_path / "db", "g1")
    made.put_flow(flow(E1), SCHEMA, None, {}, 1)
    return made


def dropping(*rows: Any, **changes: Any) -> Checkpoint:
    return replace(commit(*rows), drops=[LATE], **changes)


def test_they_stand_behind_the_rows_and_the_gap_of_their_commit_and_count_as_no_rows(database: Database) -> None:
    database.commit([dropping(ROW, gap="why")], {}, 1)
    opened, rows, gap, drops = entries(database, E1)
    assert isinstance(opened, OpenBatch)
    assert isinstance(rows, RowsBatch)
    assert isinstance(gap, GapBatch)
    assert isinstance(drops, DropsBatch)
    assert (gap.reason, gap.sequence) == (MISSED, 3)
    assert (drops.gateway, drops.epoch, drops.stream, drops.sequence, drops.flow_version) == ("g1", E1, 0, 4, 1)
    assert drops.drops == (LATE,)
    assert (database.outbox_size.batches, database.outbox_size.rows) == (4, 1)
    (mark,) = database.extents("f")
    assert mark is not None
    assert mark.cut == {0: 4}, "a fallback to this checkpoint keeps them"


def test_a_commit_that_fails_says_nothing(database: Database) -> None:
    before = everything(database)
    with pytest.raises(StoreError):
        database.commit([dropping(ROW)], {0: object()}, 1)  # type: ignore[dict-item]
    assert everything(database) == before


def test_many_are_several_batches(database: Database) -> None:
    many = [("o", f"reason {n}", n + 1) for n in range(2 * MOST_DROPS + 1)]
    database.commit([replace(commit(), drops=many)], {}, 1)
    _, *batches = entries(database, E1)
    assert [(batch.sequence, len(batch.drops)) for batch in batches] == [(2, MOST_DROPS), (3, MOST_DROPS), (4, 1)]
    assert [drop for batch in batches for drop in batch.drops] == many


def test_a_flow_that_ships_nothing_says_nothing(database: Database) -> None:
    database.put_flow(flow(E2, 2), None, dropping(), {}, 1)
    assert [type(batch) for batch in entries(database, E1)] == [OpenBatch, DropsBatch], "the version before did"
    database.commit([dropping(gap="why")], {}, 1)
    assert entries(database, E2) == []


def test_last_results_of_a_flow_have_them(database: Database) -> None:
    database.remove_flow("f", dropping(ROW), {}, 1)
    assert [type(batch) for batch in entries(database, E1)] == [OpenBatch, RowsBatch, DropsBatch]


def test_they_move_into_another_epoch_and_follow_its_newest_stream(database: Database) -> None:
    database.commit([dropping()], {}, 1)
    database.rebase("f", {E1: E9}, E2, {0: 7})
    opened, drops = entries(database, E9)
    assert isinstance(opened, OpenBatch)
    assert (drops.epoch, drops.sequence, drops.drops) == (E9, 2, (LATE,))
    database.open_stream("f", 0, E9)
    database.commit([dropping()], {}, 1)
    (there,) = [unpack_result_untrusted(entry.payload) for entry in database.outbox("f", E9, 1, 0, 9)]
    assert isinstance(there, DropsBatch)
    assert (there.stream, there.sequence) == (1, 1)


def test_what_is_shed_around_them_leaves_them_and_numbers_stay_whole(tmp_path: Path) -> None:
    database = Database(tmp_path / "small", "g1", 1_500)
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    for n in range(30):
        database.commit([commit([0.0, 60.0, "a" * 40, n]) if n != 10 else dropping([0.0, 60.0, "a", n])], {}, 1)
    found = entries(database, E1)
    assert [batch.first for batch in found] == [1, *(batch.sequence + 1 for batch in found[:-1])]
    assert [batch.drops for batch in found if isinstance(batch, DropsBatch)] == [(LATE,)]
    assert sum(isinstance(batch, GapBatch) for batch in found) == 2, "one on each side"
    assert database.outbox_size.bytes <= 1_500


def test_one_that_is_damaged_gives_way_to_a_gap(tmp_path: Path, database: Database) -> None:
    database.commit([commit(ROW)], {}, 1)
    database.commit([dropping()], {}, 1)
    database.commit([commit(ROW)], {}, 1)
    spoil(tmp_path / "db", 3)
    sent = [unpack_result_untrusted(entry.payload) for entry in database.departing("f", E1, 0, 0, 100)]
    gap = sent[2]
    assert isinstance(gap, GapBatch)
    assert (gap.sequence, gap.numbers, gap.rows, gap.reason) == (3, 1, None, "batch damaged")
    with sqlite3.connect(tmp_path / "db") as db:
        assert db.execute("SELECT sum(rows) FROM outbox").fetchone() == (2,)
