"""The streams of an epoch: results of an outage, and new ones beside them."""

from __future__ import annotations

import pytest

from edgert.core.results.results import RowsBatch, unpack_result_untrusted
from edgert.store.database import Database
from edgert.store.outbox import outbox as outbox_module
from tests.store.worlds import E1, E2, E9, ROW, SCHEMA, commit, entries, flow


def test_streams_follow_each_other_and_are_chosen_by_the_checkpoint(database: Database) -> None:
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    assert database.open_stream("stranger", 0, E2) is None
    for _ in range(3):
        database.commit([commit(ROW)], {}, 1)
    assert database.open_stream("f", 4, E2) == E1
    assert database.last_sequences("f", E1) == {0: 4}, "no more than four wait"
    assert database.open_stream("f", 3, E2) == E1
    assert database.open_stream("f", 0, E2) == E1, "one that is still empty is enough"
    database.commit([commit(ROW), commit(ROW)], {}, 1)
    assert database.last_sequences("f", E1) == {0: 4, 1: 2}
    assert database.outbox_streams() == [(("f", E1, 0), False), (("f", E1, 1), True)]
    assert database.open_stream("f", 1, E2) == E1
    database.acknowledged({("f", E1, 0): 4})
    assert database.last_sequences("f", E1) == {0: 4, 1: 2}, "two waited"
    assert database.open_stream("f", 1, E2) == E1
    assert database.last_sequences("f", E1) == {0: 4, 1: 2, 2: 0}
    assert database.departed("f") == {E1: {0: 0, 1: 0, 2: 0}}


def test_after_the_last_stream_comes_another_epoch_that_leaves_all_where_it_is(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "MOST_STREAMS", 1)
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    database.commit([commit(ROW)], {}, 1)
    assert database.open_stream("f", 1, E2) == E2
    database.commit([commit(ROW)], {}, 1)
    assert [b.sequence for b in entries(database, E1)] == [1, 2]
    (opened, _) = entries(database, E2)
    assert (opened.parent, opened.cut, opened.schema) == (E1, {0: 2}, SCHEMA)


def test_an_epoch_with_two_streams_moves_into_the_first_two_of_another(database: Database) -> None:
    """Whoever asks the tables for the streams of an epoch stops at two that are not there."""
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    for stream in range(5):
        database.commit([commit([0.0, 60.0, "a", stream])], {}, 1)
        database.open_stream("f", 0, E9)
        database.acknowledged({("f", E1, stream): 99} if stream < 3 else {})
    assert [s for (_, _, s), _ in database.outbox_streams()] == [3, 4]
    database.rebase("f", {E1: E2}, E9, {})
    assert database.last_sequences("f", E2) == {0: 2, 1: 1}
    rows = [unpack_result_untrusted(e.payload) for s in (0, 1) for e in database.outbox("f", E2, s, 0, 9)]
    assert [(b.stream, b.sequence, b.rows[0][3]) for b in rows if isinstance(b, RowsBatch)] == [(0, 2, 3), (1, 1, 4)]
