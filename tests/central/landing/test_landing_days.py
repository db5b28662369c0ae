"""Windows of many days, each of which is a file: what a commit may cost, and windows that cannot be true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgert.central.landing.landing import Landing
from edgert.core.results.results import MOST_DAYS
from tests.central.results_examples import FLOW, START, Gateway, contribution
from tests.central.worlds import landed_rows, read


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(str(tmp_path))


def of_days(days: range, source: str = "a") -> list[list[Any]]:
    """A row in each day, counted from the day of window 0."""
    return [contribution(1440 * day, source, 1.0) for day in days]


def test_a_commit_has_the_files_of_a_bounded_number_of_days(landing: Landing, tmp_path: Path) -> None:
    """Three batches took 28,764 files and 7 GB. Each gateway's come in order; one does not wait for the other."""
    one, two = Gateway("g1"), Gateway("g2")
    landing.land([one.open(), two.open()])
    batches = [one.rows(*of_days(range(16 * n, 16 * n + 16))) for n in range(3)]
    batches += [two.rows(*of_days(range(8, 16))), two.rows(*of_days(range(24)[16:]))]
    report = landing.land(batches)
    assert report.versions == {("g1", FLOW, 1 << 32, 0): 4, ("g2", FLOW, 1 << 32, 0): 3}
    assert (report.commits, report.refused_batches, report.rows) == (3, 0, 64)
    assert [at for at, _ in files_by_commit(tmp_path)] == [1, 2, 3]
    assert all(files <= MOST_DAYS for _, files in files_by_commit(tmp_path))
    assert [r[3] for r in landed_rows(tmp_path)] == [*[2] * 16, *[3] * 16, *[4] * 16, *[2] * 8, *[3] * 8]


def files_by_commit(root: Path) -> list[tuple[int, int]]:
    """(version, files that it added) of the commits with rows."""
    log = root / "landing" / FLOW / "_delta_log"
    added = [(int(entry.stem), entry.read_text().count('"add"')) for entry in sorted(log.glob("*.json"))]
    return added[1:]


def test_a_batch_of_more_days_than_any_gateway_sends_is_refused_as_one(landing: Landing, tmp_path: Path) -> None:
    g = Gateway("g1")
    landing.land([g.open()])
    report = landing.land([g.rows(*of_days(range(MOST_DAYS + 1))), g.rows(contribution(0, "a", 1.0))])
    assert (report.refused_batches, report.rows) == (1, 1)
    assert report.reasons == ["rows: expected windows of at most 16 days, got 17 days"]
    assert [r["reason"] for r in read(tmp_path, "quarantine")] == report.reasons


def test_rows_of_a_clock_that_was_ahead_land_and_are_counted(tmp_path: Path) -> None:
    """The clock that is wrong may be the collector's: to refuse them could lose the rows of a whole fleet."""
    landing, g = Landing(str(tmp_path), wall=lambda: START + 12 * 3_600.0), Gateway("g1")
    report = landing.land([g.open(), g.rows(*of_days(range(4)))])
    assert (report.rows, report.ahead_rows) == (4, 2)
