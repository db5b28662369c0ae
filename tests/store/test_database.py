"""The database: all or nothing, numbers that never mean two things, and files that are refused rather than guessed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from edgert.core.checkpoint.position import Position
from edgert.core.errors import StoreError
from edgert.core.ids import make_epoch
from edgert.core.results.results import MOST_DAYS, OpenBatch, RowsBatch, day_of, unpack_result_untrusted
from edgert.store.database import Database
from edgert.store.file.file import read_state
from edgert.store.outbox.outbox import BATCH_BYTES, BATCH_ROWS, BatchLimits, OutboxSize
from tests.store.worlds import COMMITS, E1, E2, E3, E9, ROW, SCHEMA, commit, entries, everything, flow


def test_a_commit_writes_state_queue_position_table_and_numbered_rows(database: Database) -> None:
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    database.commit([commit(ROW)], {3: b"page", 4: b""}, 6)
    (stored,) = database.flows()
    assert stored.position == Position(5, frozenset([2]))
    assert (database.state("f"), database.queue("f"), database.pages()) == ([b"d"], b"queue", [(3, b"page")])
    assert database.meta("next_index") == 6
    opened, rows = entries(database, E1)
    assert isinstance(opened, OpenBatch)
    assert isinstance(rows, RowsBatch)
    assert (opened.sequence, opened.parent, opened.schema, rows.sequence, rows.rows) == (1, None, SCHEMA, 2, [ROW])


def test_a_full_disk_in_the_middle_of_a_commit_changes_nothing_and_the_next_try_works(database: Database) -> None:
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    database.commit([commit(ROW)], {0: b"old"}, 6)
    before, size = everything(database), database.outbox_size
    pages = database.db.execute("PRAGMA page_count").fetchone()[0]
    database.db.execute(f"PRAGMA max_page_count = {pages + 2}")
    big = commit(*[ROW] * 10, index=99, deltas=(b"x", os.urandom(200_000)))
    with pytest.raises(StoreError, match="full"):
        database.commit([big], {0: b"new"}, 100)
    assert (everything(database), database.outbox_size) == (before, size)
    database.db.execute("PRAGMA max_page_count = 100000")
    database.commit([big], {0: b"new"}, 100)
    assert database.flows()[0].position.index == 99
    assert [b.sequence for b in entries(database, E1)] == [1, 2, 3]


def test_numbers_go_on_over_a_reopening_and_an_empty_outbox(tmp_path: Path) -> None:
    database = Database(tmp_path / "gateway.db", "g1")
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    database.commit([commit(*[ROW] * (BATCH_ROWS + 1))], {}, 1)
    assert database.acknowledged({("f", E1, 0): 3}) == {"f": 3}
    database.close()
    again = Database(tmp_path / "gateway.db", "g1")
    again.commit([commit(ROW)], {}, 1)
    assert [b.sequence for b in entries(again, E1)] == [4]


def test_each_new_version_names_its_parent_and_where_it_ends(database: Database) -> None:
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    database.put_flow(flow(E2, 2, Position(8)), SCHEMA, commit(ROW), {}, 9)
    (opened,) = entries(database, E2)
    assert (opened.parent, opened.cut, opened.flow_version) == (E1, {0: 2}, 2)
    assert (database.state("f"), database.queue("f"), database.flows()[0].position) == ([], b"", Position(8))
    database.put_flow(flow(E3, 3), None, commit(), {}, 9)
    assert entries(database, E3) == []
    database.put_flow(flow(E9, 4), SCHEMA, None, {}, 9)
    (opened,) = entries(database, E9)
    assert (opened.parent, opened.cut) == (E2, {0: 1}), "the version between shipped nothing"


def test_a_flow_removed_keeps_its_outbox_and_its_numbers_for_one_of_the_same_name(database: Database) -> None:
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    database.remove_flow("f", commit(ROW), {}, 7)
    (stored,) = database.flows()
    assert (stored.removed, stored.epoch, database.state("f")) == (True, E1, [])
    assert len(entries(database, E1)) == 2
    database.put_flow(flow(E2, 2), SCHEMA, None, {}, 7)
    assert entries(database, E2)[0].parent == E1
    assert not database.flows()[0].removed


def test_rebase_renames_what_never_left_and_gives_it_new_parents(database: Database) -> None:
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    database.put_flow(flow(E2, 2), SCHEMA, commit(ROW), {}, 1)
    n1, n2, old = make_epoch(10, 1), make_epoch(11, 2), E9
    database.rebase("f", {E1: n1, E2: n2}, old, {0: 44})
    assert database.epochs("f") == [n1, n2]
    first, rows = entries(database, n1)
    (second,) = entries(database, n2)
    assert (first.parent, first.cut, rows.epoch, second.parent, second.cut) == (old, {0: 44}, n1, n1, {0: 2})
    assert database.epoch("f") == n2
    size = database.outbox_size
    assert (size.batches, size.rows) == (3, 1)
    assert size.bytes == sum(
        len(e.payload) for e in database.outbox("f", n1, 0, 0, 9) + database.outbox("f", n2, 0, 0, 9)
    )


def test_acknowledgements_delete_up_to_their_number_and_nothing_else(database: Database) -> None:
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    for _ in range(3):
        database.commit([commit(ROW)], {}, 1)
    assert database.acknowledged({("f", E1, 0): 2, ("f", E2, 0): 9, ("g", E1, 0): 9, ("f", E1, 1): 9})["f"] == 2
    assert [e.sequence for e in database.outbox("f", E1, 0, 0, 9)] == [3, 4]
    assert [e.sequence for e in database.outbox("f", E1, 0, 3, 9)] == [4]
    assert [e.sequence for e in database.outbox("f", E1, 0, 0, 1)] == [3]
    assert (database.outbox_size.batches, database.outbox_size.rows) == (2, 2)
    assert database.outbox_streams() == [(("f", E1, 0), True)]


def test_what_waits_is_counted_per_stream_and_known_again_at_the_next_start(tmp_path: Path) -> None:
    database = Database(tmp_path / "gateway.db", "g1")
    for epoch in (E1, E2):
        database.put_flow(flow(epoch), SCHEMA, None, {}, 1)
        database.commit([commit(*[ROW] * (BATCH_ROWS + 1))], {}, 1)
    database.acknowledged({("f", E1, 0): 99, ("f", E2, 0): 2})
    size = database.outbox_size
    assert (size.batches, size.rows, database.outbox_streams()) == (1, 1, [(("f", E2, 0), True)])
    assert size.bytes == len(database.outbox("f", E2, 0, 0, 9)[0].payload)
    database.close()
    again = Database(tmp_path / "gateway.db", "g1")
    assert again.outbox_size == size
    again.acknowledged({("f", E2, 0): 3})
    assert (again.outbox_size, again.outbox_streams()) == (OutboxSize(0, 0, 0), [])


def test_what_the_uplink_asks_at_each_turn_is_looked_up_not_searched_for(database: Database) -> None:
    asked: list[str] = []
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    database.commit([commit(ROW)], {}, 1)
    database.db.set_trace_callback(asked.append)
    database.outbox_streams()
    database.outbox("f", E1, 0, 1, 9)
    database.departed("f")
    database.departs("f", E1, 0)
    database.epoch("f")
    database.acknowledged({("f", E1, 0): 1})
    database.commit([commit(ROW)], {}, 1)
    database.db.set_trace_callback(None)
    asked = [a for a in asked if a.startswith(("SELECT", "DELETE", "UPDATE"))]
    assert len(asked) >= 8
    for query in asked:
        for *_, plan in database.db.execute(f"EXPLAIN QUERY PLAN {query}"):
            # the index holds nothing but the streams of which something waits
            waiting = plan in ("SCAN stream USING INDEX stream_waiting", "CORRELATED SCALAR SUBQUERY 1")
            assert waiting or plan.startswith("SEARCH"), (query, plan)


def test_a_long_epoch_is_renamed_a_few_batches_at_a_time(database: Database) -> None:
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    for _ in range(200):
        database.commit([commit([0.0, 60.0, os.urandom(100_000).hex(), 1])], {}, 1)
    tracemalloc.start()
    try:
        database.rebase("f", {E1: E2}, E1 - 1, {})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert database.outbox_size.bytes > 20_000_000
    assert peak < 8_000_000
    numbers = [e.sequence for at in range(0, 201, 10) for e in database.outbox("f", E2, 0, at, 10)]
    assert numbers == list(range(1, 202))


def test_an_epoch_is_split_above_what_may_have_left(database: Database) -> None:
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    for n in range(4):
        database.commit([commit([0.0, 60.0, "a", n])], {}, 1)
    database.acknowledged({("f", E1, 0): 2})
    database.rebase("f", {E1: E2}, E1, {0: 3}, {0: 3}, "why")
    assert [b.sequence for b in entries(database, E1)] == [3]
    opened, gap, *rows = entries(database, E2)
    assert (opened.parent, opened.cut, opened.schema) == (E1, {0: 3}, SCHEMA)
    assert (gap.sequence, gap.text, gap.rows) == (2, "why", None)
    assert [(b.sequence, b.rows[0][3]) for b in rows] == [(3, 2), (4, 3)]
    assert (database.outbox_size.batches, database.epoch("f")) == (5, E2)
    database.commit([commit(ROW)], {}, 1)
    assert entries(database, E2)[-1].sequence == 5


def test_what_may_have_left_is_what_was_there_when_sending_ended(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    database = Database(path, "g1")
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    assert database.departed("f") == {E1: {0: 0}}
    database.departs("f", E1, 0)
    database.commit([commit(ROW)], {}, 1)
    assert database.departed("f") == {E1: {0: 2}}
    for _ in range(2):
        database.close()
        database = Database(path, "g1")
        database.commit([commit(ROW)], {}, 1)
        assert database.departed("f") == {E1: {0: 2}}, "nothing was sent since"


class FailsAt:
    """A connection one of whose statements fails."""

    def __init__(self, inner: sqlite3.Connection, statements: set[str]) -> None:
        self.inner, self.statements = inner, statements

    def execute(self, query: str, *arguments: Any) -> Any:
        if query in self.statements:
            raise sqlite3.OperationalError(f"{query}: disk I/O error")
        return self.inner.execute(query, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_a_rollback_that_fails_is_a_store_error_and_is_made_up_for_by_the_next(database: Database) -> None:
    failing: Any = FailsAt(database.db, {"COMMIT", "ROLLBACK"})
    database.db = failing
    with pytest.raises(StoreError, match="could not be taken back"):
        database.set_meta("key", 1)
    with pytest.raises(StoreError, match="could not be taken back"):
        database.set_meta("key", 2)
    failing.statements.clear()
    assert database.db.in_transaction
    database.set_meta("other", 3)
    assert (database.meta("key"), database.meta("other")) == (2, 3), (
        "what was to be said is, with the next that succeeds"
    )


def test_a_snapshot_takes_the_place_of_what_it_says(database: Database) -> None:
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    database.commit([commit(deltas=(b"1", b"2"))], {}, 1)
    last = database.last_state("f")
    database.commit([commit(deltas=(b"3",))], {}, 1)
    database.compact_state("f", b"12", last)
    database.commit([commit(deltas=(b"4",))], {}, 1)
    assert database.state("f") == [b"12", b"3", b"4"]


def test_a_snapshot_of_what_is_gone_is_not_written(database: Database) -> None:
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    database.commit([commit(deltas=(b"1", b"2"))], {}, 1)
    last = database.last_state("f")
    database.put_flow(flow(E2), SCHEMA, None, {}, 1)
    database.commit([commit(deltas=(b"3",))], {}, 1)
    database.compact_state("f", b"12", last)
    assert database.state("f") == [b"3"]
    assert read_state(database.path, "f", database.last_state("f"))[1] == [b"3"]
    with pytest.raises(StoreError, match="expected state of flow f"):
        read_state(database.path, "f", last)


def test_kill_9_in_a_loop_of_commits_leaves_every_part_of_the_same_moment(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    Database(path, "g1").close()
    said = 0
    for lives in (3, 17, 40):
        command = [sys.executable, "-c", COMMITS, str(path)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        assert child.stdout
        for _ in range(lives):
            said = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        database = Database(path, "g1")
        at = database.flows()[0].position.index
        assert at >= said, "what was committed is there"
        assert database.meta("next_index") == at + 1
        assert database.state("f") == [b"%d" % n for n in range(1, at + 1)]
        assert (database.queue("f"), database.pages()) == (b"%d" % at, [(0, b"%d" % at)])
        batches = entries(database, E1)[1:] if at < 900 else []
        assert [b.rows[0][3] for b in batches] == list(range(1, at + 1))[: len(batches)]
        assert database.last_sequences("f", E1) == {0: at + 1}
        database.close()


def test_rows_with_sketches_are_cut_by_their_bytes(database: Database) -> None:
    """A message of all of them would be refused by the collector for its size."""
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    rows = [[0.0, 60.0, str(number), os.urandom(33_000)] for number in range(20)]
    huge = [0.0, 60.0, "huge", os.urandom(2 * BATCH_BYTES)]
    database.commit([commit(*rows, huge, ROW)], {}, 1)
    batches = [batch.rows for batch in entries(database, E1)[1:]]
    assert [len(batch) for batch in batches] == [7, 7, 6, 1, 1]
    assert [row for batch in batches for row in batch] == [*rows, huge, ROW]


@pytest.mark.parametrize(("letter", "batches"), [("k", [13, 7]), ("ü", [6, 6, 6, 2])])
def test_long_keys_are_cut_into_several_batches_by_what_they_take_as_utf_8(
    database: Database, letter: str, batches: list[int]
) -> None:
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    rows = [[0.0, 60.0, letter * 20_000 + str(number), 1] for number in range(20)]
    database.commit([commit(*rows)], {}, 1)
    found = [batch.rows for batch in entries(database, E1)[1:]]
    assert [len(batch) for batch in found] == batches
    assert [row for batch in found for row in batch] == rows


def test_result_batches_are_as_large_as_the_settings_say(tmp_path: Path) -> None:
    database = Database(tmp_path / "gateway.db", "g1", batch_limits=BatchLimits(rows=3, bytes=1_024))
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    long = [0.0, 60.0, "x" * 1_000, 1]
    database.commit([commit(*[ROW] * 7, long, long)], {}, 1)
    batches = [unpack_result_untrusted(entry.payload) for entry in database.outbox("f", E1, 0, 1, 10)]
    sizes = [len(batch.rows) for batch in batches if isinstance(batch, RowsBatch)]
    assert sizes == [3, 3, 2, 1]


def test_result_batches_have_windows_of_few_days_each(database: Database) -> None:
    """The collector takes no batch of more days; a year of two sensors' days makes as few batches as it can."""
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    rows = [[day * 86_400.0, (day + 1) * 86_400.0, sensor, 1] for sensor in "ab" for day in range(365)]
    database.commit([commit(*rows)], {}, 1)
    batches = [batch.rows for batch in entries(database, E1)[1:]]
    assert [len({day_of(row[0]) for row in batch}) for batch in batches] == [*[MOST_DAYS] * 22, 365 - 22 * MOST_DAYS]
    assert sorted(row for batch in batches for row in batch) == sorted(rows)
