from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")
deltalake = pytest.importorskip("deltalake")

from edgert.central.tables.peek import newest_rows  # noqa: E402

START = datetime(2026, 1, 1, tzinfo=UTC)


def write(path: Path, minutes: range) -> None:
    rows = [
        {"window_start": START + timedelta(minutes=m), "source": s, "n": m, "day": "d"} for m in minutes for s in "ab"
    ]
    deltalake.write_deltalake(str(path), pa.Table.from_pylist(rows), mode="append", partition_by=["day"])


def test_a_table_that_is_not_there_yet_is_none(tmp_path: Path) -> None:
    assert newest_rows(str(tmp_path / "fleet" / "air"), 5) is None


def test_the_newest_windows_come_from_the_newest_file_and_the_count_from_all(tmp_path: Path) -> None:
    write(tmp_path, range(3))
    write(tmp_path, range(3, 5))
    found = newest_rows(str(tmp_path), 1)
    assert found is not None
    columns, rows, total, version = found
    assert columns == ("window_start", "source", "n", "day")
    assert [row[2] for row in rows] == [4]
    assert rows[0][0] == START + timedelta(minutes=4)
    assert (total, version) == (10, 1)


def test_an_empty_table_has_columns_and_no_rows(tmp_path: Path) -> None:
    write(tmp_path, range(1))
    deltalake.DeltaTable(str(tmp_path)).delete()
    found = newest_rows(str(tmp_path), 5)
    assert found is not None
    assert (found[1], found[2]) == ([], 0)


def test_windows_that_a_clock_ahead_has_made_do_not_hide_the_right_ones(tmp_path: Path) -> None:
    """A board's clock 20 years ahead for 3 s: for 20 years nothing else was shown."""
    write(tmp_path, range(3))
    write(tmp_path, range(10_000_000, 10_000_002))
    now = START + timedelta(minutes=30)
    found = newest_rows(str(tmp_path), 9, now.timestamp)
    assert found is not None
    assert [row[2] for row in found[1]] == [2, 2]
    early = newest_rows(str(tmp_path), 9, (START - timedelta(days=1)).timestamp)
    assert early is not None
    assert [row[2] for row in early[1]] == [10_000_001] * 2, "better than nothing"
