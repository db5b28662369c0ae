"""The outbox's quota: who makes way, that what may have left does not, and that every row shed is stated once."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.results.results import GapBatch, OpenBatch, RowsBatch, unpack_result_untrusted
from edgert.store.database import Database
from edgert.store.outbox import quota
from edgert.store.outbox.outbox import BatchLimits
from edgert.store.outbox.quota import FULL, TOO_OLD
from edgert.store.state.records import StoredFlow
from tests.store.quota_world import COLUMNS, E1, E2, KEEPS, SCHEMA, Clock, numbers, results, stored

pytestmark = pytest.mark.usefixtures("uncompressed")


def put(database: Database, name: str, *numbers: int, size: int = 0) -> bool:
    """Each number in a batch of its own; whether all were taken."""
    refused = [database.commit([results(name, n, size=size)], {}, 1) for n in numbers]
    return not any(refused)


def batches(database: Database, name: str = "f", epoch: int = E1) -> list[Any]:
    return [unpack_result_untrusted(e.payload) for e in database.outbox(name, epoch, 0, 0, 100_000)]


def gaps(found: list[Any]) -> list[tuple[int, int, int | None, str]]:
    return [(g.first, g.sequence, g.rows, g.reason) for g in found if isinstance(g, GapBatch)]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Database]:
    def made(*flows: StoredFlow, quota: float = 2_000, clock: Clock | None = None) -> Database:
        database = Database(tmp_path / "gateway.db", "g1", quota, clock or Clock())
        for one in flows or ([] if database.flows() else [stored()]):
            database.put_flow(one, SCHEMA, None, {}, 1)
        return database

    return made


def test_a_flood_of_small_batches_leaves_the_newest_and_one_small_gap(make: Callable[..., Database]) -> None:
    database = make()
    for n in range(1, 501):
        put(database, "f", n)
        assert database.outbox_size.bytes <= 2_000
    found = batches(database)
    assert isinstance(found[0], OpenBatch)
    kept = numbers(found)
    assert len(kept) >= 5
    assert kept == list(range(501 - len(kept), 501))
    assert gaps(found) == [(2, 501 - len(kept), 500 - len(kept), FULL)]
    assert [b.first for b in found] == [1] + [b.sequence + 1 for b in found[:-1]], "numbers are whole"
    assert database.shed == {("f", FULL): 500 - len(kept)}


def test_what_may_have_left_stays_as_it_is_also_after_a_crash(make: Callable[..., Database]) -> None:
    database = make()
    database.leaving_ahead = 2
    put(database, "f", 1, 2, 3, 4, 5, 6)
    sent = database.departing("f", E1, 0, 1, 2)
    assert [e.sequence for e in sent] == [2, 3]
    database.close()
    again = make()
    put(again, "f", *range(7, 50))
    found = batches(again)
    assert numbers(found)[:4] == [1, 2, 3, 4], "2 and 3 were sent, 4 and 5 may have been"
    assert again.outbox("f", E1, 0, 1, 2) == sent
    assert gaps(found)[0][0] == 6


def test_where_all_may_have_left_the_new_batch_itself_makes_way(make: Callable[..., Database]) -> None:
    database = make()
    put(database, "f", 1, 2, 3, size=400)
    assert len(database.departing("f", E1, 0, 0, 9)) == 4
    before = batches(database)
    put(database, "f", 4, size=400)
    found = batches(database)
    assert found[:4] == before
    assert gaps(found) == [(5, 5, 1, FULL)]
    database.acknowledged({("f", E1, 0): 5})
    put(database, "f", 5, size=400)
    assert numbers(batches(database)) == [5]


def test_a_gap_that_may_have_left_is_not_made_longer(make: Callable[..., Database]) -> None:
    database = make(quota=1_000)
    database.leaving_ahead = 0
    put(database, "f", *range(1, 21))
    sent = database.departing("f", E1, 0, 1, 1)
    assert gaps([unpack_result_untrusted(sent[0].payload)]) != []
    put(database, "f", *range(21, 41))
    assert database.outbox("f", E1, 0, 1, 1) == sent
    first, second = gaps(batches(database))
    assert second[0] == first[1] + 1


def test_the_flow_that_holds_most_gives_way_first(make: Callable[..., Database]) -> None:
    database = make(stored("alarm"), stored("much"), quota=10_000)
    put(database, "much", *range(100), size=500)
    put(database, "alarm", *range(10))
    assert numbers(batches(database, "alarm")) == list(range(10))
    assert gaps(batches(database, "alarm")) == []
    assert database.outbox_size.bytes <= 10_000


def test_a_flow_that_keeps_all_is_refused_whole_and_the_others_go_on(make: Callable[..., Database]) -> None:
    database = make(stored("f", document=KEEPS), stored("other"), quota=2_300)
    assert put(database, "f", 1, 2, 3, size=400)
    before, size = batches(database), database.outbox_size
    commit = Checkpoint("f", Position(9), [b"delta"], b"queue", COLUMNS, results("f", 4, size=400).rows)
    assert database.commit([commit, results("other", 1)], {3: b"page"}, 77) == {"f"}
    assert batches(database) == before
    assert (database.state("f"), database.flows()[0].position) == ([], Position())
    assert (database.pages(), database.meta("next_index")) == ([(3, b"page")], 77)
    assert numbers(batches(database, "other")) == [1]
    assert database.outbox_size.batches == size.batches + 1
    assert database.commit([Checkpoint("f", Position(8), [b"x"], b"")], {}, 1) == set(), "no result, no need of room"
    database.acknowledged({("f", E1, 0): 3})
    assert database.commit([commit], {}, 1) == set()
    assert numbers(batches(database)) == [3, 4]
    assert database.shed == {}


def test_what_is_committed_beside_a_large_refused_part_and_after_it_survives_a_crash(tmp_path: Path) -> None:
    """SQLite itself loses it where the refused part is undone by ROLLBACK TO, once it has spilled its page cache."""
    one_per_batch = BatchLimits(rows=1)
    database = Database(tmp_path / "gateway.db", "g1", 300_000, Clock(), batch_limits=one_per_batch)
    for name in ("f", "g"):
        database.put_flow(stored(name, document=KEEPS), SCHEMA, None, {}, 1)
    put(database, "f", 0)
    large = results("f", *range(1, 3_000), size=1_000)
    assert database.commit([large, results("g", 1)], {}, 1) == {"f"}
    assert put(database, "g", 2, 3)
    (tmp_path / "crashed").mkdir()
    for file in tmp_path.glob("gateway.db*"):
        if not file.name.endswith("-shm"):
            shutil.copy(file, tmp_path / "crashed")
    found = Database(tmp_path / "crashed/gateway.db", "g1", 300_000, Clock(), batch_limits=one_per_batch)
    assert found.lost == ""
    assert numbers(batches(found, "g")) == [1, 2, 3]


def test_a_flow_that_keeps_all_takes_room_from_larger_ones_only(make: Callable[..., Database]) -> None:
    database = make(stored("f", document=KEEPS), stored("large"), quota=10_000)
    put(database, "large", *range(100), size=500)
    taken = [n for n in range(100) if put(database, "f", n, size=500)]
    assert numbers(batches(database)) == taken
    assert gaps(batches(database)) == []
    left = sum(len(e.payload) for e in database.outbox("large", E1, 0, 0, 999))
    assert 3_000 <= left <= 6_000, "about a half each"
    assert database.outbox_size.bytes <= 10_000


def test_what_was_shed_in_vain_stays(make: Callable[..., Database]) -> None:
    """A flow that keeps all takes what it may from a larger one, and it is not enough: nothing has happened."""
    database = make(stored("f", document=KEEPS), stored("large"), quota=10_000)
    database.leaving_ahead = 0
    put(database, "large", *range(16), size=400)
    assert len(database.departing("large", E1, 0, 0, 16)) == 16
    before, size = batches(database, "large"), database.outbox_size
    assert not put(database, "f", 1, size=5_000)
    assert (batches(database, "large"), database.outbox_size, database.shed) == (before, size, {})


def test_what_is_larger_than_the_quota_is_let_in_where_nothing_else_of_its_flow_waits(
    make: Callable[..., Database],
) -> None:
    """Or it would wait for ever."""
    database = make(stored("f", document=KEEPS))
    large = results("f", 1, 2, 3, size=1_000)
    put(database, "f", 0)
    assert database.commit([large], {}, 1) == {"f"}
    database.acknowledged({("f", E1, 0): 2})
    assert database.commit([large], {}, 1) == set()
    assert database.commit([large], {}, 1) == {"f"}
    assert not put(database, "f", 4)
    database.acknowledged({("f", E1, 0): 3})
    assert put(database, "f", 4)


def test_the_last_results_of_a_flow_that_keeps_all_are_written_in_any_case(make: Callable[..., Database]) -> None:
    database = make(stored("f", document=KEEPS))
    put(database, "f", 1, 2, 3, size=400)
    database.put_flow(stored("f", E2, KEEPS, 2), SCHEMA, results("f", 4, size=400), {}, 1)
    assert numbers(batches(database)) == [1, 2, 3, 4]
    assert not put(database, "f", 5, size=400)
    database.remove_flow("f", results("f", 6, size=400), {}, 1)
    assert numbers(batches(database, epoch=E2)) == [6]


def test_of_what_waits_only_the_time_counts_in_which_the_gateway_ran(make: Callable[..., Database]) -> None:
    clock = Clock()
    database = make(quota=1e9, clock=clock)
    put(database, "f", 1, 2)
    clock.now += 50
    put(database, "f", 3)
    database.close()
    clock.now += 1e6
    again = make(quota=1e9, clock=clock)
    clock.now += 49
    again.shed_old(100.0)
    assert numbers(batches(again)) == [1, 2, 3]
    clock.now += 2
    again.shed_old(100.0)
    assert numbers(batches(again)) == [3]
    assert gaps(batches(again)) == [(2, 3, 2, TOO_OLD)]
    clock.now += 50
    again.shed_old(100.0)
    assert gaps(batches(again)) == [(2, 4, 3, TOO_OLD)]
    assert again.shed == {("f", TOO_OLD): 3}


def test_too_old_batches_go_some_at_a_time_and_it_is_said_whether_more_wait(make: Callable[..., Database]) -> None:
    clock = Clock()
    database = make(quota=1e9, clock=clock)
    put(database, "f", *range(2 * quota.AT_ONCE + 1))
    clock.now += 200
    put(database, "f", -1)
    assert database.shed_old(100.0)
    assert database.shed_old(100.0)
    assert numbers(batches(database)) == [2 * quota.AT_ONCE, -1]
    assert not database.shed_old(100.0)
    assert gaps(batches(database)) == [(2, 2 * quota.AT_ONCE + 2, 2 * quota.AT_ONCE + 1, TOO_OLD)]


def test_of_too_old_batches_what_may_have_left_stays(make: Callable[..., Database]) -> None:
    clock = Clock()
    database = make(quota=1e9, clock=clock)
    put(database, "f", 1, 2)
    database.departing("f", E1, 0, 0, 1)
    clock.now += 1e6
    database.shed_old(1.0)
    assert numbers(batches(database)) == [1, 2]


def test_a_gap_of_many_numbers_takes_one_in_another_epoch(make: Callable[..., Database]) -> None:
    database = make()
    put(database, "f", *range(100))
    kept = numbers(batches(database))
    database.rebase("f", {E1: E2}, E1 - 1, {})
    found = batches(database, epoch=E2)
    assert gaps(found) == [(2, 2, 100 - len(kept), FULL)]
    assert numbers(found) == kept
    assert [b.sequence for b in found] == list(range(1, len(found) + 1))


def test_what_making_room_asks_is_looked_up_not_searched_for(make: Callable[..., Database]) -> None:
    asked: list[str] = []
    database = make()
    put(database, "f", *range(50))
    database.db.set_trace_callback(asked.append)
    put(database, "f", 50)
    database.shed_old(0.0)
    database.departing("f", E1, 0, 0, 1)
    database.db.set_trace_callback(None)
    assert database.shed[("f", FULL)]
    for query in (a for a in asked if a.startswith(("SELECT", "DELETE", "UPDATE"))):
        for *_, plan in database.db.execute(f"EXPLAIN QUERY PLAN {query}"):
            known = ("SEARCH", "SCAN stream USING INDEX stream_waiting", "USE TEMP B-TREE FOR ORDER BY")
            assert plan.startswith(known), (query, plan)


NO_MAP = "payload = CAST(x'c1' || substr(payload, 2) AS BLOB)"


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE opening SET payload = x'c1'",
        f"UPDATE outbox SET {NO_MAP} WHERE rows = 0 AND sequence > 1",
        f"UPDATE outbox SET {NO_MAP}, digest = NULL WHERE rows = 0 AND sequence > 1",
        "UPDATE outbox SET payload = x'28b52ffd', digest = NULL WHERE rows = 0 AND sequence > 1",
    ],
    ids=["opening", "gap", "gap without digest", "gap that seems compressed"],
)
def test_what_is_damaged_holds_up_no_commit(damage: str, make: Callable[..., Database]) -> None:
    database = make()
    assert put(database, "f", *range(20), size=200)
    assert gaps(batches(database))
    with sqlite3.connect(database.path) as db:
        assert db.execute(damage).rowcount == 1
    assert put(database, "f", *range(20, 40), size=200)
    assert database.outbox_size.bytes <= 2_000
    found = [unpack_result_untrusted(entry.payload) for entry in database.departing("f", E1, 0, 1, 100)]
    shown = [number for gap in found if isinstance(gap, GapBatch) for number in range(gap.first, gap.sequence + 1)]
    assert sorted([*shown, *(batch.sequence for batch in found if isinstance(batch, RowsBatch))]) == list(range(2, 42))
