"""The benchmark of outages: when a batch stood in the table is read from the table's own log."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.outage.gateway import commit, fill
from benchmarks.outage.measure import _fault, landed_at, landings
from benchmarks.outage.rows import EPOCH, FLOW, GATEWAY, RATE, SCHEMA, Rows
from edgert.central.landing.landing import Landing
from edgert.core.results.results import RowsBatch, unpack_result_untrusted
from edgert.store.database import Database
from tests.central.results_examples import Gateway


def test_each_batch_is_found_in_the_commit_that_landed_it(tmp_path: Path) -> None:
    landing, rows = Landing(str(tmp_path)), Rows(1, 60)
    g = Gateway(GATEWAY, EPOCH, SCHEMA, FLOW)
    landing.land([g.open(), g.rows(*rows.seconds(1))])
    between = time.time()
    landing.land([g.rows(*rows.seconds(2)), g.rows(*rows.seconds(1), stream=1)])
    landed = landings(tmp_path / "landing" / FLOW / "_delta_log")
    assert [numbers for _, numbers in landed] == [{0: 2}, {0: 3, 1: 1}]
    assert landed_at(landed, 0, 2) <= between + 0.01
    assert landed_at(landed, 1, 1) == landed_at(landed, 0, 3) >= between - 0.01
    with pytest.raises(StopIteration):
        landed_at(landed, 1, 2)
    assert _fault(tmp_path, 4 * RATE) == ""
    assert "got 200 of which 200" in _fault(tmp_path, 4 * RATE + 1)


def test_a_row_that_stands_twice_is_a_fault(tmp_path: Path) -> None:
    landing, rows = Landing(str(tmp_path)), Rows(1, 60).seconds(1)
    g = Gateway(GATEWAY, EPOCH, SCHEMA, FLOW)
    landing.land([g.open(), g.rows(*rows), g.rows(rows[0])])
    assert _fault(tmp_path, RATE + 1) == "expected 51 rows, each once, got 51 of which 50 are different"


def test_the_outbox_is_what_checkpoints_made(tmp_path: Path) -> None:
    database, rows = Database(tmp_path / "gateway.db", GATEWAY), Rows(1, 60)
    filled = fill(database, rows, hours=0.01)
    assert (filled["batches"], filled["rows"]) == (8, 36 // 5 * 5 * RATE)
    assert 2 * filled["sample_bytes"] < filled["sample_plain_bytes"], "compression is worth its while"
    database.commit([commit(rows.seconds(1))], {}, 1)
    found = [unpack_result_untrusted(e.payload) for e in database.outbox(FLOW, EPOCH, 0, 1, 99)]
    windows = {(row[0], row[2]) for batch in found if isinstance(batch, RowsBatch) for row in batch.rows}
    assert len(windows) == filled["rows"] + RATE
    database.close()
