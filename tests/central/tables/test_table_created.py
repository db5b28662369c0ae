"""Two writers that both find no table: one of them creates it, the other decides anew."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from edgert.central.tables.table import CommitConflict, Table

ROWS = pa.table({"day": pa.array([dt.date(2026, 1, 1)] * 3), "n": pa.array([1, 2, 3])})


@pytest.mark.parametrize("number", range(10))
def test_a_table_is_created_by_one_of_two_and_the_other_conflicts(tmp_path: Path, number: int) -> None:
    """A commit that is tried again behind the creation would double all its rows: it compares no identifiers."""
    uri, together, answers = str(tmp_path / "landing" / "f"), threading.Barrier(2), []

    def write() -> None:
        table = Table(uri)
        assert not table.refresh()
        together.wait(60.0)
        try:
            table.append(ROWS, {"g1/f/1/0": 5})
            answers.append("created")
        except CommitConflict:
            assert table.refresh()
            answers.append(f"found {table.version('g1/f/1/0')}")

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert sorted(answers) == ["created", "found 5"]
    table = Table(uri)
    table.refresh()
    assert len(table.read(["n"], "true")) == 3
