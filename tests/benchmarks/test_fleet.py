"""The benchmark of the fleet job: what is shipped is what lands, and when it is in a table is read from its log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import machine
from benchmarks.fleet.landings import FLOW, LATE, Fleet, Landings
from benchmarks.fleet.measure import BENCHMARK, seen_at
from benchmarks.fleet.soak import LEVELS, MOST_GROWTH, draw, growth, soak
from benchmarks.outage.rows import READINGS, START
from benchmarks.report import Options, Report
from edgert.central.tables.show import select

TABLE = f"landing_{FLOW.replace('-', '_')}"


def rows(root: Path, what: str) -> list[Any]:
    _, [row] = select(str(root), f"SELECT {what} FROM {TABLE} WHERE day IS NOT NULL")
    return row


def test_each_gateway_ships_each_of_its_windows_once_and_corrects_some(tmp_path: Path) -> None:
    fleet, landings = Fleet(7, 4, 5, START, window_s=60.0, corrected=2), Landings(tmp_path)
    landings.land(fleet.opens())
    for second in range(23):
        landings.land(fleet.second(second))
    windows = "count(DISTINCT concat(cast(window_start AS varchar), source))"
    got = rows(tmp_path, f"count(*), {windows}, sum(n), count(DISTINCT gateway)")
    assert got == [fleet.rows, fleet.windows, fleet.rows * READINGS, 7]
    # Seconds 0 to 18 are shipped by all; of each window from then on two of four sensors are corrected.
    assert fleet.windows >= 7 * 4 * 19
    assert fleet.rows - fleet.windows == (fleet.windows - 7 * 4 * LATE) // 2
    ended = rows(tmp_path, "max(window_end)")[0].timestamp()
    assert ended == fleet.start_of(23) == START + 23 * 60


def test_a_result_that_does_not_land_is_no_figure(tmp_path: Path) -> None:
    fleet, landings = Fleet(1, 1, 1, START), Landings(tmp_path)
    landings.land(fleet.opens())
    fleet.second(0)
    with pytest.raises(RuntimeError, match="held"):
        landings.land(fleet.second(1))


def test_windows_are_seen_with_the_first_version_that_has_them(tmp_path: Path) -> None:
    fleet, landings = Fleet(1, 1, 2, START), Landings(tmp_path)
    landings.land(fleet.opens())
    times = [time.time()]
    for second in range(5):
        landings.land(fleet.second(second))
        times.append(time.time())
    seen = seen_at(tmp_path / "landing" / FLOW, fleet)
    assert len(seen) == 5
    # It ships in seconds 0, 2 and 4.
    for at, second in ((0, 0), (1, 2), (2, 2), (3, 4), (4, 4)):
        assert times[second] - 0.01 <= seen[at] <= times[second + 1] + 0.01


def test_growth_is_that_of_the_last_quarter_over_the_one_before() -> None:
    at = [float(n) for n in range(101)]
    assert growth(at, [min(n, 50.0) for n in at]) == pytest.approx(0.0)
    assert growth(at, at) == pytest.approx((87.5 - 62.0) / 62.0)
    rises = [100.0 + 200 * (90 <= n < 96) for n in at]
    assert growth(at, rises) == 0.0, "what goes down again is none"
    saw = [100.0 + n % 7 for n in range(101)]
    assert abs(growth(at, saw)) < MOST_GROWTH / 2
    assert growth(at, [0.0] * 101) == 0.0


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.integration
@pytest.mark.timeout(400)
@pytest.mark.xdist_group("spark")
def test_the_benchmark_in_short(tmp_path: Path) -> None:
    report = Report("fleet", BENCHMARK.about, machine.describe(), 1)
    BENCHMARK.measure(Options(quick=True, repetitions=1, say=lambda text: None), report)
    assert all(figure.valid for figure in (*report.figures.values(), *report.ratios.values())), report.table()
    assert report.figures["catch-up, as landed, settled"].median > 0
    assert report.figures["low rate, commit to fleet table, median"].median > 0
    assert BENCHMARK.draw(report, tmp_path).stat().st_size > 0
    report.write_json(tmp_path)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.integration
@pytest.mark.xdist_group("spark")
def test_a_short_soak_ends_with_an_exact_table(tmp_path: Path) -> None:
    report = Report("fleet-soak", "short", machine.describe(), 1)
    samples = soak(50 / 3600, tmp_path, report, ["--day-s", "10", "--every-s", "5", "--compact-files", "5"])
    assert len(samples.at) >= 3
    for name in LEVELS:
        assert report.figures[name].valid, report.table()
        assert samples.of[name][-1] > 0, name
    done = next(note for note in report.notes if "upkeep:" in note)
    assert " 0 failures" in done
    assert draw(samples, report, tmp_path).stat().st_size > 0
