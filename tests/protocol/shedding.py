"""What an outbox that is full sheds, message by message: the product counts rows, each of which may stand for many."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from edgert.core.results.results import RowsBatch, unpack_result_untrusted
from edgert.store.database import Database
from edgert.store.outbox import quota
from edgert.store.outbox.quota import Shed
from tests.protocol.ledger import Ledger


def watch(database: Database, ledger: Ledger) -> None:
    """Notes what transactions of `database` shed, when they are through."""
    found: dict[int, Counter[str]] = {}
    put_gap, transaction = quota._put_gap, database._transaction

    def noted(db: sqlite3.Connection, gateway: str, key: Any, above: int, run: list[tuple[int, int]], why: str) -> Shed:
        counts: Counter[str] = Counter()
        for number, _ in run:
            query = "SELECT payload FROM outbox WHERE flow = ? AND epoch = ? AND stream = ? AND sequence = ?"
            batch = unpack_result_untrusted(db.execute(query, (*key, number)).fetchone()[0])
            assert isinstance(batch, RowsBatch)
            by, n = batch.columns.index("u"), batch.columns.index("n")
            for row in batch.rows:
                counts[row[by]] += row[n]
        shed = put_gap(db, gateway, key, above, run, why)
        found[id(shed)] = counts
        return shed

    @contextmanager
    def watched() -> Iterator[sqlite3.Connection]:
        found.clear()
        with mock.patch.object(quota, "_put_gap", noted), transaction() as db:
            yield db
        for shed in database._shedding:
            ledger.shed[shed.flow].update(found[id(shed)])

    database._transaction = watched  # type: ignore[method-assign]
