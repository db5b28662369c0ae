"""Results that leave ahead of their checkpoint: numbered for good, and counted where they are made again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import StoreError
from edgert.store.database import Database
from edgert.store.state.records import FlowResults
from tests.store.worlds import COLUMNS, E1, ROW, SCHEMA, commit, entries, everything, flow


def results(*rows: Any, name: str = "f") -> FlowResults:
    return FlowResults(name, COLUMNS, rows)


def row(n: int) -> list[Any]:
    return [*ROW[:-1], n]


def sent(database: Database) -> list[tuple[int, Sequence[Any]]]:
    return [(batch.sequence, batch.rows) for batch in entries(database, E1)[1:]]


def test_what_leaves_ahead_is_numbered_as_all_results_and_changes_nothing_else(database: Database) -> None:
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    database.commit([commit(row(1))], {}, 6)
    before = database.flows(), database.state("f"), database.queue("f")
    assert database.put_early([results(row(2)), results(row(3))]) == set()
    assert (database.flows(), database.state("f"), database.queue("f")) == before
    database.commit([commit(row(4))], {}, 7)
    assert sent(database) == [(2, [row(1)]), (3, [row(2)]), (4, [row(3)]), (5, [row(4)])]
    assert database.outbox_size.batches == 5


def test_a_number_that_left_ahead_is_never_given_again(tmp_path: Path) -> None:
    database = Database(tmp_path / "gateway.db", "g1")
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    database.put_early([results(row(1))])
    database.acknowledged({("f", E1, 0): 2})
    database.close()
    again = Database(tmp_path / "gateway.db", "g1")
    again.put_early([results(row(2))])
    assert [(batch.sequence, batch.rows) for batch in entries(again, E1)] == [(3, [row(2)])]
    again.close()


def test_what_is_made_again_is_counted_over_crashes(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    database = Database(path, "g1")
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    database.put_early([results(row(1), row(2))])
    database.commit([commit(row(3))], {}, 6)
    assert not database.repeated
    database.put_early([results(row(4))])
    database.put_early([results(row(5), row(6))])
    database.close()
    second = Database(path, "g1")
    assert second.repeated == {"f": 3}
    second.put_early([results(row(4))])  # again
    second.close()
    third = Database(path, "g1")
    assert third.repeated == {"f": 4}
    third.close()
    fourth = Database(path, "g1")
    assert fourth.repeated == {"f": 4}, "nothing had left since"
    fourth.close()


def test_a_flow_that_goes_back_counts_its_own_rows_only(database: Database) -> None:
    for name in ("f", "g"):
        database.put_flow(replace(flow(E1), name=name), SCHEMA, None, {}, 1)
    database.put_early([results(row(1)), results(row(2), row(3), name="g")])
    database.go_back("g")
    database.go_back("g")
    assert database.repeated == {"g": 2}
    database.commit([commit()], {}, 6)
    database.go_back("f")
    assert database.repeated == {"g": 2}, "a checkpoint covers them"


def test_what_cannot_be_written_changes_nothing(database: Database) -> None:
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    before, size = everything(database), database.outbox_size
    database.db.execute("PRAGMA max_page_count = 1")
    big = results(*([float(n), n + 60.0, f"source {n * 7919}", n] for n in range(20_000)))
    with pytest.raises(StoreError, match="full"):
        database.put_early([results(row(1)), big])
    assert (everything(database), database.outbox_size) == (before, size)
    database.go_back("f")
    assert not database.repeated


def test_a_flow_that_keeps_all_waits_for_room(database: Database) -> None:
    keeps = replace(flow(E1), document={"name": "f", "outbox": {"full": "stop-acknowledging"}})
    database.put_flow(keeps, SCHEMA, None, {}, 1)
    database.quota_bytes = database.outbox_size.bytes + 10
    before = database.outbox_size
    assert database.put_early([results(row(1))]) == {"f"}
    assert database.outbox_size == before
    database.go_back("f")
    assert not database.repeated
    database.quota_bytes = 1e9
    assert database.put_early([results(row(1))]) == set()
    assert sent(database) == [(2, [row(1)])]
