"""Upgrades of a database: each step once, whole or not at all, and never back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from edgert.core.errors import DamagedError, StoreError
from edgert.store.file.schema import UPGRADES, upgrade

FIRST = "CREATE TABLE a (x INTEGER);"
SECOND = "ALTER TABLE a ADD COLUMN y INTEGER NOT NULL DEFAULT 7; UPDATE a SET y = x;"
THIRD = "CREATE TABLE b (z INTEGER);"


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(":memory:")
    yield made
    made.close()


def version(database: sqlite3.Connection) -> int:
    found: int = database.execute("PRAGMA user_version").fetchone()[0]
    return found


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_an_older_database_is_brought_up_to_date_with_what_it_has(database: sqlite3.Connection, steps: int) -> None:
    upgrade(database, [FIRST])
    database.execute("INSERT INTO a VALUES (3)")
    database.commit()
    upgrade(database, [FIRST, SECOND, THIRD][:steps])
    upgrade(database, [FIRST, SECOND, THIRD])
    assert version(database) == 3
    assert database.execute("SELECT x, y FROM a").fetchall() == [(3, 3)]
    assert database.execute("SELECT * FROM b").fetchall() == []


def test_a_step_that_fails_leaves_the_version_before_it(database: sqlite3.Connection) -> None:
    upgrade(database, [FIRST])
    with pytest.raises(sqlite3.Error):
        upgrade(database, [FIRST, SECOND, f"{THIRD} CREATE TABLE a (x INTEGER);"])
    database.rollback()
    assert version(database) == 2
    assert database.execute("SELECT name FROM sqlite_schema WHERE name = 'b'").fetchall() == []
    upgrade(database, [FIRST, SECOND, THIRD])
    assert version(database) == 3


def test_a_newer_database_is_refused_and_one_with_other_columns_is_damaged(database: sqlite3.Connection) -> None:
    upgrade(database, [FIRST, SECOND])
    with pytest.raises(StoreError, match="schema version 2, this edgert knows up to 1: start the newer edgert"):
        upgrade(database, [FIRST])
    with pytest.raises(DamagedError, match="expected the column z in the table a"):
        upgrade(database, ["CREATE TABLE a (x INTEGER, y INTEGER);", "ALTER TABLE a ADD COLUMN z INTEGER;"])


def test_the_tables_of_this_version_come_of_nothing(database: sqlite3.Connection) -> None:
    upgrade(database)
    assert version(database) == len(UPGRADES)
    assert database.execute("SELECT count(*) FROM flow").fetchone() == (0,)
