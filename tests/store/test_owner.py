"""A database belongs to one gateway: the tables would take its results from no other."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from edgert.core.errors import StoreError
from edgert.store.database import Database
from tests.store.worlds import E1, ROW, SCHEMA, commit, flow

REFUSED = "belongs to gateway 'g1', and this one is 'g2'.*set gateway.id back, or give this one a gateway.data_dir"


def used_by_g1(path: Path, *, shipped: bool) -> None:
    database = Database(path, "g1")
    if shipped:
        database.put_flow(flow(E1), SCHEMA, None, {}, 1)
        database.commit([commit(ROW)], {}, 6)
    database.close()


def as_before(path: Path) -> None:
    """Of a version that did not say whose it is."""
    with sqlite3.connect(path) as raw:
        raw.execute("DELETE FROM meta WHERE key = 'gateway'")
    raw.close()


@pytest.mark.parametrize("shipped", [False, True])
def test_another_gateways_database_is_refused_and_left_to_its_own(tmp_path: Path, shipped: bool) -> None:
    path = tmp_path / "gateway.db"
    used_by_g1(path, shipped=shipped)
    for _ in range(2):  # a refusal takes nothing over
        with pytest.raises(StoreError, match=REFUSED):
            Database(path, "g2")
    database = Database(path, "g1")
    assert database.outbox_size.batches == 2 * shipped
    database.close()


def test_a_database_that_does_not_say_whose_it_is_says_it_in_its_openings(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    used_by_g1(path, shipped=True)
    as_before(path)
    with pytest.raises(StoreError, match=REFUSED):
        Database(path, "g2")
    Database(path, "g1").close()
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT value FROM meta WHERE key = 'gateway'").fetchall() == [("g1",)]
    raw.close()


def test_a_database_in_which_nothing_was_opened_goes_to_whoever_comes(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    used_by_g1(path, shipped=False)
    as_before(path)
    Database(path, "g2").close()
    with pytest.raises(StoreError, match="belongs to gateway 'g2'"):
        Database(path, "g1")


def test_a_damaged_name_or_opening_keeps_nobody_from_its_own_database(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    used_by_g1(path, shipped=True)
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE meta SET value = 'q1' WHERE key = 'gateway'")
    Database(path, "g1").close()
    raw.execute("UPDATE opening SET payload = x'c1'")
    raw.commit()
    raw.close()
    Database(path, "g1").close()
