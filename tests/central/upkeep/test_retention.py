"""Retention: whole days go, at the right time, and what a wrong clock did is undone: real tables, without Spark."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from deltalake import DeltaTable

from edgert.central.landing.arrow_rows import LandingBatch
from edgert.central.landing.landing import Landing
from edgert.central.landing.rounds import key_of
from edgert.central.tables.query import query
from edgert.central.tables.readers import FLEET_JOB, Reach
from edgert.central.upkeep.table import KeptTable
from edgert.central.upkeep.upkeep import Upkeep
from edgert.core.settings.central import Upkeep as Settings
from tests.central.results_examples import DAY_S, Gateway, contribution
from tests.central.upkeep_examples import LANDING, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_retention_drops_whole_days_when_all_have_read_them_and_lets_no_more_of_them_land(tmp_path: Path) -> None:
    site = Site(tmp_path, Settings(compact_files=2, retention_days=3), now=20_000 * DAY_S + 10)
    day = dt.date(2024, 10, 4)
    for window in (0, 1440, 2 * 1440):
        site.ship(2, window)
    site.elsewhere(8)
    gap = site.gateway.gap()
    site.landing.land([gap])
    site.tell("slow", 3)
    stale = Landing(str(tmp_path))
    stale.version(key_of(gap))
    assert site.keep().days == 0
    assert site.days() == {None, day, day + dt.timedelta(1), day + dt.timedelta(2)}

    site.now += 4 * DAY_S
    done = site.keep()
    assert (done.days, done.held_by) == (0, "slow"), "the rows are there until it has read them"
    late = [site.gateway.rows(contribution(5, "a", 1.0), contribution(1440 * 2, "b", 1.0))]
    report = stale.land(late)
    assert (report.rows, report.refused_rows) == (1, 1)
    (refused,) = query(DeltaTable(str(tmp_path / "quarantine")), ["reason"])
    assert "gone by retention" in refused["reason"]

    site.tell("slow", site.version)
    assert site.keep().days == 1
    assert site.days() == {None, day + dt.timedelta(1), day + dt.timedelta(2)}
    site.now += 1 * DAY_S
    site.tell("slow", site.version)
    site.keep()
    site.tell("slow", site.version)
    assert site.keep().days == 1
    assert site.days() == {None, day + dt.timedelta(2)}
    # Opening rows have no day: who lands knows its schema still, and its numbers.
    assert Landing(str(tmp_path)).land(late).commits == 0
    more = site.gateway.rows(contribution(2 * 1440, "c", 1.0))
    assert Landing(str(tmp_path)).land([more]).rows == 1


@pytest.mark.parametrize("patience_days", [3, 30])
def test_retention_waits_for_the_fleet_job_also_where_it_has_not_begun_to_read(
    tmp_path: Path, patience_days: int
) -> None:
    """A flow, or the later table of a version, that came while the job was away; unless it was left behind."""
    site = Site(tmp_path, Settings(compact_files=2, retention_days=2, reader_patience_days=patience_days))
    site.readers.tell(FLEET_JOB, {LANDING: Reach(0, 0)})
    new, table = Gateway("g9", flow="elsewhere"), "landing/elsewhere"
    site.landing.land([new.open(), *(new.rows(contribution(day * 1440, "a", 1.0)) for day in range(5))])
    site.now += 5 * DAY_S
    done = site.keep(table)
    if patience_days == 3:
        assert (done.days, done.held_by) == (3, "")
        return
    assert (done.days, done.held_by) == (0, FLEET_JOB)
    version = DeltaTable(str(tmp_path / table)).version()
    site.readers.tell(FLEET_JOB, {table: Reach(version, version)})
    assert site.keep(table).days == 3


def test_a_clock_that_is_years_ahead_takes_no_more_than_the_newest_day_allows(site: Site) -> None:
    site.ship(1)
    site.ship(1, 3 * 1440)
    settings = Settings(compact_files=2, retention_days=2)
    works = list(Upkeep(str(site.root), settings, wall=lambda: site.now + 3650 * DAY_S).round(thorough=True))
    assert [work.trouble for work in works] == [""] * len(works)
    assert sum(work.days for work in works) == 1
    assert site.days() == {None, dt.date(2024, 10, 7)}
    assert site.landing.land([site.gateway.rows(contribution(4 * 1440, "a", 1.0))]).rows == 1


@pytest.mark.parametrize("retention_days", [0, 30])
@pytest.mark.parametrize("dropped", [True, False])
def test_a_landing_table_that_a_wrong_clock_closed_is_opened_again(
    tmp_path: Path, retention_days: int, dropped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, Settings(retention_days=retention_days))
    if not dropped:
        site.ship(1, -3 * 1440)
    table = KeptTable(str(tmp_path), LANDING)
    table.refuse_before(dt.date(2036, 1, 1))
    batch: LandingBatch = site.gateway.rows(contribution(5, "a", 1.0))
    assert site.landing.land([batch]).refused_rows == 1
    site.keep()
    assert "its first day 2036-01-01 is in the future" in caplog.text
    assert site.landing.land([site.gateway.rows(contribution(5, "a", 1.0))]).rows == 1
    assert len(site.sequences()) == 2 - dropped
    caplog.clear()
    site.keep()
    assert not caplog.records
    early = Upkeep(str(tmp_path), Settings(retention_days=retention_days), wall=lambda: 0.0)
    assert list(early.round(thorough=True))
    assert not caplog.records, "it is this clock that is wrong"


def test_gaps_drops_and_quarantine_are_dropped_by_the_day_of_their_arrival(tmp_path: Path) -> None:
    site = Site(tmp_path, Settings(compact_files=2, retention_days=3))
    old = Landing(str(tmp_path), wall=lambda: site.now)
    new = Landing(str(tmp_path), wall=lambda: site.now + 5 * DAY_S)
    site.elsewhere(5)
    g = site.gateway
    before: list[LandingBatch] = [g.gap(rows=1), g.drops(("in", "late", 1))]
    after: list[LandingBatch] = [*before, g.gap(rows=2), g.drops(("in", "late", 2))]
    old.land(before)
    old.quarantine_payloads([("t", b"", "old")])
    new.land(after)
    new.quarantine_payloads([("t", b"", "new")])
    site.now += 5 * DAY_S
    assert site.keep("gaps").days == 1
    assert [r["rows"] for r in query(DeltaTable(str(tmp_path / "gaps")))] == [2]
    assert [r["count"] for r in query(DeltaTable(str(tmp_path / "drops")))] == [2]
    assert [r["reason"] for r in query(DeltaTable(str(tmp_path / "quarantine")))] == ["new"]
    assert old.land(after).commits == 0
