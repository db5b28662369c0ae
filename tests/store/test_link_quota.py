"""Batches for other gateways: an absent board's may not fill the card."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.errors import StoreError
from edgert.core.ids import make_epoch
from edgert.core.results.results import GapBatch, unpack_result_untrusted
from edgert.links.messages import NOTHING, Number
from edgert.store.database import Database
from edgert.store.outbox import link_outbox
from edgert.store.outbox_tables import LINKS_FULL
from tests.store.quota_world import COLUMNS, KEEPS, SCHEMA, stored

EPOCH = make_epoch(1, 7)
QUOTA = 10_000


def opened(path: Path, *flows: str, keeps: str = "") -> Database:
    database = Database(path / "gateway.db", "g1", link_quota_bytes=QUOTA)
    for flow in flows:
        document = KEEPS if flow == keeps else {}
        database.put_flow(stored(flow, document=document), SCHEMA, None, {}, 1)
    return database


def send(database: Database, flow: str, gateway: str, size: int, rows: int = 1) -> bool:
    """One batch; whether it was taken."""
    made = Checkpoint(flow, Position(), [], b"", COLUMNS, links=[(gateway, rows, bytes(size))])
    return not database.commit([made], {}, 1)


def waiting(database: Database) -> dict[tuple[str, str], tuple[int, int]]:
    """(flow, gateway) → batches, bytes."""
    return {(flow, gateway): (batches, size) for flow, gateway, batches, _, size in database.read(link_outbox.sizes)}


def test_what_is_sent_and_deleted_takes_no_room(tmp_path: Path) -> None:
    with closing(opened(tmp_path, "f")) as database:
        for n in range(1, 50):
            assert send(database, "f", "g2", 1_000)
            database.write(link_outbox.delete_to, "f", "g2", Number(EPOCH, n))
        assert not database.shed


def test_oldest_batches_of_an_absent_board_make_way_and_it_is_counted_and_said(tmp_path: Path) -> None:
    with closing(opened(tmp_path, "f")) as database:
        for _ in range(30):
            send(database, "f", "g2", 1_000, rows=5)
        ((batches, size),) = waiting(database).values()
        assert size <= QUOTA
        assert database.shed["f", LINKS_FULL] == 5 * (30 - batches)
        pending = database.read(link_outbox.pending, "f", "g2", NOTHING, 1 << 20)
        assert [batch.sequence for batch in pending] == list(range(31 - batches, 31)), "the newest wait, in order"


def test_a_gap_in_the_tables_says_how_many_rows_made_way(tmp_path: Path) -> None:
    with closing(opened(tmp_path, "f")) as database:
        database.commit([Checkpoint("f", Position(), [], b"", COLUMNS, [[0.0, 60.0, "x", 1]])], {}, 1)
        for _ in range(12):
            send(database, "f", "g2", 1_000, rows=5)
        found = [unpack_result_untrusted(entry.payload) for entry in database.outbox("f", EPOCH, 0, 0, 100)]
        (gap,) = [batch for batch in found if isinstance(batch, GapBatch)]
        assert f"{database.shed['f', LINKS_FULL]} rows for g2 made way" in gap.text


def test_a_flow_that_keeps_all_stops_instead_and_others_make_way_for_it(tmp_path: Path) -> None:
    with closing(opened(tmp_path, "f", "k", keeps="k")) as database:
        for _ in range(9):
            assert send(database, "f", "g2", 1_000)
        for _ in range(10):
            assert send(database, "k", "g2", 900)
        assert database.shed["f", LINKS_FULL] >= 8
        assert not send(database, "k", "g2", 2_000), "nothing of others is left to make way"
        assert database.shed["k", LINKS_FULL] == 0
        database.write(link_outbox.delete_to, "k", "g2", Number(EPOCH, 5))
        assert send(database, "k", "g2", 2_000)


def test_a_flow_that_keeps_all_and_sends_nothing_there_does_not_wait_for_others_batches(tmp_path: Path) -> None:
    with closing(opened(tmp_path, "a", "k", keeps="k")) as database:
        assert send(database, "k", "g2", 9_000)
    with closing(opened(tmp_path)) as database:
        database.link_quota_bytes = 5_000
        assert not database.commit([Checkpoint("k", Position(), [b"delta"], b"", COLUMNS)], {}, 1)
        assert not send(database, "k", "g2", 100)


def test_what_a_failed_commit_shed_waits_again_and_counts(tmp_path: Path) -> None:
    with closing(opened(tmp_path, "f")) as database:
        for _ in range(33):
            send(database, "f", "g2", 300)
        too_much = Checkpoint("f", Position(), [], b"", COLUMNS, links=[("g2", 1, bytes(200))])
        unwritable: Any = {0: object()}
        with pytest.raises(StoreError):
            database.commit([too_much], unwritable, 1)
        assert waiting(database) == {("f", "g2"): (33, 9_900)}
        send(database, "f", "g2", 900)
        assert sum(size for _, size in waiting(database).values()) <= QUOTA


def test_what_waits_counts_across_a_restart(tmp_path: Path) -> None:
    with closing(opened(tmp_path, "f")) as database:
        for _ in range(9):
            send(database, "f", "g2", 1_000)
    with closing(opened(tmp_path)) as database:
        for _ in range(3):
            send(database, "f", "g3", 1_000)
        assert sum(size for _, size in waiting(database).values()) <= QUOTA


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("fg"), st.sampled_from(["g2", "g3"]), st.integers(1, 4_000)), max_size=60))
def test_bytes_stay_within_the_quota_and_every_row_waits_or_is_counted(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[str, str, int]]
) -> None:
    with closing(opened(tmp_path_factory.mktemp("quota"), "f", "g")) as database:
        for flow, gateway, size in batches:
            assert send(database, flow, gateway, size)
            assert sum(size for _, size in waiting(database).values()) <= QUOTA
        left: Counter[str] = Counter()
        for flow, _, _, rows, _ in database.read(link_outbox.sizes):
            left[flow] += rows
        for flow in "fg":
            assert left[flow] + database.shed[flow, LINKS_FULL] == sum(name == flow for name, _, _ in batches)
