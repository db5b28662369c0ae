"""Batches of the outbox that are damaged: gaps take their numbers."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from edgert.core.results.results import GapBatch, OpenBatch, RowsBatch, unpack_result_untrusted
from edgert.store.database import Database
from tests.store.worlds import E1, E2, E9, ROW, SCHEMA, commit, entries, flow, spoil


def with_batches(path: Path, count: int) -> Database:
    """An opening and `count` batches of one row, 2 to `count` + 1."""
    database = Database(path, "g1")
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    for _ in range(count):
        database.commit([commit(ROW)], {}, 1)
    return database


def sent(database: Database) -> list[Any]:
    return [unpack_result_untrusted(entry.payload) for entry in database.departing("f", E1, 0, 0, 100)]


def test_a_gap_says_how_many_rows_are_lost_and_all_else_leaves(tmp_path: Path) -> None:
    path = tmp_path / "db"
    database = with_batches(path, 4)
    spoil(path, 3)
    opened, one, gap, two, three = sent(database)
    assert isinstance(opened, OpenBatch)
    assert all(isinstance(batch, RowsBatch) and batch.rows == [ROW] for batch in (one, two, three))
    assert isinstance(gap, GapBatch)
    assert (gap.sequence, gap.numbers, gap.rows, gap.reason) == (3, 1, 1, "batch damaged")
    assert dict(database.shed) == {("f", "batch damaged"): 1}
    assert [e.payload for e in database.departing("f", E1, 0, 2, 1)] == [database.outbox("f", E1, 0, 2, 1)[0].payload]
    assert dict(database.shed) == {("f", "batch damaged"): 1}, "counted once"
    size = database.outbox_size
    database.close()
    assert Database(path, "g1").outbox_size == size


def test_an_opening_is_put_there_once_more(tmp_path: Path) -> None:
    path = tmp_path / "db"
    database = with_batches(path, 1)
    before = sent(database)
    spoil(path, 1)
    assert sent(database) == before
    assert not database.shed.total()


@pytest.mark.parametrize("taken", [0, 2])
def test_a_damaged_gap_has_all_the_numbers_since_the_batch_before(taken: int, tmp_path: Path) -> None:
    """`taken`: what the collector has acknowledged; it takes a gap that begins with numbers that it has."""
    path = tmp_path / "db"
    database = with_batches(path, 5)
    spoil(path, 3, 4, 5)
    with sqlite3.connect(path) as db:  # a gap that took the numbers 3 to 5
        db.execute("DELETE FROM outbox WHERE flow = 'f' AND sequence IN (3, 4)")
        db.execute("UPDATE outbox SET rows = 0 WHERE flow = 'f' AND sequence = 5")
    database.acknowledged({("f", E1, 0): taken})
    gap = next(batch for batch in sent(database) if isinstance(batch, GapBatch))
    assert (gap.sequence, gap.numbers, gap.rows) == (5, 4 if taken else 3, None)


def test_what_moves_into_another_epoch_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "db"
    database = with_batches(path, 3)
    spoil(path, 2)
    database.rebase("f", {E1: E9}, E2, {0: 7})
    opened, gap, *rest = entries(database, E9)
    assert isinstance(opened, OpenBatch)
    assert isinstance(gap, GapBatch)
    assert (gap.reason, gap.rows, len(rest)) == ("batch damaged", 1, 2)
    assert all(isinstance(batch, RowsBatch) for batch in rest)


@pytest.mark.parametrize("rows", [1, 0], ids=["rows", "a gap"])
def test_what_the_tables_lost_is_put_before_a_first_batch_that_is_damaged(rows: int, tmp_path: Path) -> None:
    path = tmp_path / "db"
    database = with_batches(path, 4)
    database.acknowledged({("f", E1, 0): 3})
    spoil(path, 4)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE outbox SET rows = ? WHERE flow = 'f' AND sequence = 4", (rows,))
    database.fill("f", E1, 0, 0)
    opened, *gaps, last = sent(database)
    assert isinstance(opened, OpenBatch)
    assert [(gap.first, gap.sequence) for gap in gaps] == ([(2, 3), (4, 4)] if rows else [(2, 4)])
    assert isinstance(last, RowsBatch)


def test_gaps_are_put_also_where_the_opening_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "db"
    database = with_batches(path, 2)
    spoil(path, 2)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE opening SET payload = x'c1'")
    database.put_gap("f", "something")
    database.acknowledged({("f", E1, 0): 1})
    damaged, _, gap = sent(database)
    assert [(g.flow_version, g.reason) for g in (damaged, gap)] == [(1, "batch damaged"), (1, "input missed")]


def test_a_batch_without_a_digest_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "db"
    database = with_batches(path, 1)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE outbox SET digest = NULL WHERE rows > 0")
    _, gap = sent(database)
    assert (gap.sequence, gap.reason) == (2, "batch damaged")
