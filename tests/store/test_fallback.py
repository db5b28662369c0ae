"""Marks of checkpoints, and what a fallback does to numbers that are given new names later."""

from __future__ import annotations

from typing import Any

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.results.results import GapBatch, OpenBatch, RowsBatch, unpack_result_untrusted
from edgert.store.database import Database
from edgert.store.fallback import DAMAGED, MOST_HOLES
from edgert.store.state.records import StateExtent
from tests.store.worlds import COLUMNS, E1, E2, E3, E9, ROW, SCHEMA, flow


def commit(database: Database, index: int, *rows: Any, deltas: tuple[bytes, ...] = (b"d",)) -> None:
    database.commit([Checkpoint("f", Position(index), deltas, b"", COLUMNS, rows)], {}, index + 1)


def told(database: Database, epoch: int) -> list[Any]:
    """Of each batch that waits: its number, and its rows, parent and cut, or reason."""
    found: list[Any] = []
    for entry in database.outbox("f", epoch, 0, 0, 100):
        batch = unpack_result_untrusted(entry.payload)
        match batch:
            case RowsBatch():
                found.append((entry.sequence, [row[-1] for row in batch.rows]))
            case OpenBatch():
                found.append((entry.sequence, batch.parent, batch.cut))
            case GapBatch():
                found.append((entry.sequence, batch.reason))
    return found


def test_each_checkpoint_says_what_it_covers(database: Database) -> None:
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    commit(database, 4, deltas=(b"1", b"2"))
    commit(database, 5, ROW)
    commit(database, 6, deltas=())
    assert database.state("f") == [b"1", b"2", b"d"]
    assert database.extents("f") == [
        None,
        StateExtent(2, Position(4), E1, {0: 1}),
        StateExtent(3, Position(5), E1, {0: 2}),
    ]
    database.compact_state("f", b"both", 2)
    assert database.extents("f") == [StateExtent(2, Position(4), E1, {0: 1}), StateExtent(3, Position(5), E1, {0: 2})]


def test_a_checkpoint_with_very_many_holes_has_no_mark(database: Database) -> None:
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    holes = Position(9_999, frozenset(range(1, MOST_HOLES + 2)))
    database.commit([Checkpoint("f", holes, (b"1",), b"")], {}, 10_000)
    assert database.extents("f") == [None]


def test_a_fallback_opens_an_epoch_that_cuts_the_one_before(database: Database) -> None:
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    commit(database, 4, ROW)
    commit(database, 7, ROW, ROW)
    back = database.extents("f")[0]
    assert back
    database.fall_back("f", back, E2, "why")
    (stored,) = database.flows()
    assert (stored.position, stored.epoch, database.state("f")) == (Position(4), E2, [b"d"])
    assert told(database, E1) == [(1, None, {}), (2, [1]), (3, [1, 1])], "the outbox stays"
    assert told(database, E2) == [(1, E1, {0: 2}), (2, DAMAGED)]
    assert database.meta("doubtful_to") == 7
    assert database.departed("f")[E2] == {0: 0}, "nothing of it has left"
    assert database.outbox_size.batches == 5


def test_a_flow_that_ships_nothing_falls_back_too(database: Database) -> None:
    database.put_flow(flow(E1), None, None, {}, 1)
    commit(database, 4)
    commit(database, 7)
    back = database.extents("f")[0]
    assert back
    database.fall_back("f", back, E2, "why")
    assert (database.flows()[0].position, database.flows()[0].epoch) == (Position(4), E2)
    assert database.outbox_size.batches == 0


def test_where_epochs_get_new_names_what_is_void_stays_void_and_there_is_no_way_back(database: Database) -> None:
    """A restored card that had fallen back before: the tables have number 2 of its first epoch, which it never sent."""
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    commit(database, 4, ROW)
    commit(database, 7, [0.0, 60.0, "a", 5])
    back = database.extents("f")[0]
    assert back
    database.fall_back("f", back, E2, "why")
    commit(database, 8, [0.0, 60.0, "a", 6])
    database.rebase("f", {E1: E3, E2: E9}, E1, {0: 1}, {0: 1}, "went back")
    assert told(database, E1) == [(1, None, {})]
    assert told(database, E3) == [(1, E1, {0: 1}), (2, "database went back in time"), (3, [1])], "without the five"
    assert told(database, E9) == [(1, E3, {0: 3}), (2, DAMAGED), (3, [6])]
    assert database.extents("f") == [None, None]


def test_a_new_name_does_not_bring_back_what_a_fallback_cut(database: Database) -> None:
    """All of the first epoch has left, then comes the fallback; the tables have more of it than that."""
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    commit(database, 4, ROW)
    commit(database, 7, ROW)
    back = database.extents("f")[0]
    assert back
    database.fall_back("f", back, E2, "why")
    database.rebase("f", {E1: E3, E2: E9}, E1, {0: 3}, {0: 3}, "went back")
    assert told(database, E3)[0] == (1, E1, {0: 2})
