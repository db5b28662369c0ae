"""Tables stay small, and nothing that anybody still needs goes: real tables, without Spark."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from edgert.central.landing.arrow_rows import LandingBatch
from edgert.central.landing.landing import Landing
from edgert.central.landing.rounds import key_of
from edgert.central.tables.lease import LeaseLost, TableLease
from edgert.central.tables.models import ModelRegistry
from edgert.central.upkeep import table as upkeep_table
from edgert.central.upkeep.table import FIRST_DAY, KeptTable
from edgert.central.upkeep.upkeep import REST_S, Upkeep, UpkeepSchedule, Work
from edgert.cli.main import main
from edgert.core.settings.central import Upkeep as Settings
from tests.central.results_examples import DAY_S, FLOW, Gateway, contribution
from tests.central.upkeep_examples import LANDING, Site
from tests.central.worlds import version as model_version
from tests.examples import examples
from tests.waiting import wait_until


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_many_small_files_become_one_and_all_else_goes(site: Site) -> None:
    site.ship(30)
    before = site.sequences()
    done = site.keep()
    assert (done.compacted, done.deleted, done.files) == (30, 30, 2)  # the other one is that of the opening row
    assert site.data_files() == 2
    assert site.sequences() == before
    again = site.keep()
    assert (again.compacted, again.deleted) == (0, 0)


def test_files_and_log_level_off_while_results_keep_coming(site: Site) -> None:
    sizes = []
    rounds = examples(8, 12)
    for _ in range(rounds):
        site.ship(15)
        done = site.keep()
        sizes.append((done.files, site.data_files(), site.log_files()))
    assert len(set(sizes[3:])) <= 3, sizes
    assert max(files for files, _, _ in sizes) <= 3
    assert max(log for _, _, log in sizes) <= 60, sizes
    assert site.sequences() == list(range(2, rounds * 15 + 2))


def test_what_is_left_of_a_day_becomes_one_file_when_the_day_rests(tmp_path: Path) -> None:
    site = Site(tmp_path, Settings(compact_files=100), now=time.time() + REST_S - 60.0)
    site.ship(5)
    assert site.keep().compacted == 0, "more may be coming"
    site.now += 120.0
    done = site.keep()
    assert (done.compacted, done.files) == (5, 2)  # the other one is that of the opening row
    site.ship(1)
    site.now += 2 * REST_S
    assert site.keep().compacted == 2, "a late row"
    version = site.version
    assert site.keep().compacted == 0
    assert site.version == version


def test_small_files_of_a_resting_day_that_do_not_fit_into_one_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, Settings(compact_files=100), now=time.time() + 2 * REST_S)
    site.ship(2)
    sizes = pa.table(DeltaTable(str(tmp_path / LANDING)).get_add_actions())["size_bytes"].to_pylist()
    monkeypatch.setattr(upkeep_table, "SMALL_BYTES", max(sizes) + 1)
    assert list(KeptTable(str(tmp_path), LANDING).compact(None, float("inf"))) == [], "it is not even tried"
    monkeypatch.setattr(upkeep_table, "SMALL_BYTES", 10 * max(sizes))
    assert site.keep().compacted == 2


def test_nothing_lands_twice_after_compaction_and_clean_up_of_the_log(site: Site) -> None:
    batches: list[LandingBatch] = [site.gateway.rows(contribution(0, "a", float(i))) for i in range(20)]
    gap = site.gateway.gap()
    for batch in [*batches, gap]:
        site.landing.land([batch])
    for _ in range(3):
        site.ship(11)
        site.keep()
    log = sorted(p.name for p in (site.root / LANDING / "_delta_log").glob("*.json"))
    assert int(log[0][:20]) > 20, "what wrote the identifiers is gone from the log"
    for landing in (site.landing, Landing(str(site.root))):
        report = landing.land([*batches, gap])
        assert (report.rows, report.commits) == (0, 0)
        assert report.versions[key_of(gap)] == 55
    assert site.sequences() == [n for n in range(2, 56) if n != gap.sequence]


def test_a_reader_that_is_behind_finds_all_that_it_needs(site: Site) -> None:
    site.ship(5)
    site.tell("slow", site.version)
    site.tell("fast", site.version + 30)
    at, there = site.version, site.sequences()
    for _ in range(4):
        site.ship(15)
        done = site.keep()
    assert done.held_by == "slow"
    # The table as of its version, and each commit since, with the files that it added.
    assert site.sequences(at) == there
    table = site.root / LANDING
    read = set()
    for version in range(at + 1, site.version + 1):
        for line in (table / "_delta_log" / f"{version:020}.json").read_text().splitlines():
            added = json.loads(line).get("add")
            if added and added["dataChange"]:
                assert (table / added["path"]).is_file()
                read.add(added["path"])
    assert len(read) == 60
    for reader in ("slow", "fast"):
        site.tell(reader, site.version)
    site.ship(1)
    assert site.keep().deleted >= 60


def test_versions_stay_as_long_as_is_set_for_those_who_are_not_registered(site: Site) -> None:
    site.ship(10)
    kept = Upkeep(str(site.root), Settings(compact_files=2))
    (done,) = [w for w in kept.round(thorough=True) if w.table == LANDING]
    assert (done.compacted, done.deleted, done.log_deleted) == (10, 0, 0)
    assert site.sequences(5) == [2, 3, 4, 5, 6]


def test_a_reader_that_is_gone_is_waited_for_in_bounds_and_left_behind_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, Settings(compact_files=2, reader_patience_days=2))
    site.ship(5)
    site.tell("gone", site.version)
    site.ship(10)
    site.now += 1.9 * DAY_S
    assert site.keep().held_by == "gone"
    assert not caplog.records
    site.now += 0.2 * DAY_S
    done = site.keep()
    assert (done.held_by, site.data_files()) == ("", 2)
    assert "reader gone of landing/air said nothing for 2.1 days" in caplog.text
    assert caplog.records[0].levelno == logging.ERROR
    assert site.upkeep.totals.left_readers == 1
    caplog.clear()
    site.keep()
    assert not caplog.records, "it is said once"
    assert site.readers.tell("gone", {}) == set()
    assert [r.left for r in site.readers.all()] == [True]


def test_landing_goes_on_while_tables_are_kept_and_lands_each_result_once(site: Site) -> None:
    stop = threading.Event()
    trouble = []

    def keep() -> None:
        while not stop.is_set():
            for work in site.upkeep.round(thorough=True):
                trouble.append(work.trouble)

    site.tell("reader", 1)
    ships = examples(75, 150)
    thread = threading.Thread(target=keep)
    thread.start()
    try:
        for n in range(ships):
            site.ship(1)
            if n % 10 == 0:  # a reader a few commits behind, as a stream is
                site.tell("reader", max(1, site.version - 5))
    finally:
        stop.set()
        thread.join()
    assert site.sequences() == list(range(2, ships + 2))
    assert site.keep().files <= 3
    assert site.upkeep.totals.rounds > 2
    assert site.upkeep.totals.deleted > ships // 3


def test_a_collector_that_was_silent_while_the_log_was_cleaned_up_goes_on(site: Site) -> None:
    silent = Landing(str(site.root))
    other = Gateway("g2")
    silent.land([other.open()])
    for _ in range(3):
        site.ship(15)
        site.keep()
    assert silent.land([other.rows(contribution(0, "b", 1.0))]).rows == 1
    assert len(site.sequences()) == 46


def test_a_file_that_came_back_by_restore_stays(site: Site) -> None:
    site.ship(5)
    at = site.version
    for gone in KeptTable(str(site.root), LANDING).compact(2, float("inf")):
        assert gone == 5
    DeltaTable(str(site.root / LANDING)).restore(at)
    there = site.sequences()
    table = KeptTable(str(site.root), LANDING)
    table.delete_files(table.version)
    assert site.sequences() == there


def test_what_a_writer_left_that_died_is_deleted_when_nobody_can_be_writing_it_any_more(site: Site) -> None:
    site.ship(5)
    old, young = (site.root / LANDING / "day=2024-10-04" / f"part-{name}.parquet" for name in ("old", "young"))
    for path, age_s in ((old, 25 * 3600), (young, 23 * 3600)):
        path.write_bytes(b"half a file")
        os.utime(path, (time.time() - age_s,) * 2)
    for path in (site.root / LANDING).rglob("part-0*.parquet"):  # what belongs to the table stays, however old it is
        os.utime(path, (time.time() - 30 * DAY_S,) * 2)
    there = site.sequences()
    table = KeptTable(str(site.root), LANDING)
    assert table.delete_files(table.version) == (1, len(b"half a file"))
    assert not old.exists()
    assert young.exists()
    assert site.sequences() == there


def test_the_checksums_that_spark_writes_beside_its_files_go_with_them(site: Site) -> None:
    """Hadoop's on a local disk: hidden, and in no log."""

    def sums() -> set[Path]:
        return set((site.root / LANDING).rglob(".*.crc"))

    def summed(path: Path) -> Path:
        return path.with_name(path.name.removeprefix(".").removesuffix(".crc"))

    site.ship(20)
    for path in [p for p in (site.root / LANDING).rglob("*") if p.is_file()]:
        path.with_name(f".{path.name}.crc").write_bytes(b"crc")
    orphans = [site.root / LANDING / "day=2024-10-04" / f".part-{name}.parquet.crc" for name in ("old", "young")]
    for path, age_s in zip(orphans, (25 * 3600, 23 * 3600), strict=True):
        path.write_bytes(b"crc")
        os.utime(path, (time.time() - age_s,) * 2)
    done = site.keep()
    assert done.deleted == 20
    assert not orphans[0].exists(), "an older upkeep left it"
    assert {p for p in sums() if not summed(p).exists()} == {orphans[1]}, "its file may be on its way"
    assert len(sums()) >= 2, "those of files that are there stay"
    assert len(site.sequences()) == 20


def test_a_first_day_that_is_none_is_an_error_that_names_the_table(site: Site) -> None:
    table = DeltaTable(str(site.root / LANDING))
    table.alter.set_table_properties({FIRST_DAY: "soon"}, raise_if_not_exists=False)
    report = site.landing.land([site.gateway.rows(contribution(0, "a", 1.0))])
    (why,) = report.failed.values()
    assert f"{LANDING}: property edgert.first_day: expected a day such as" in why
    (work,) = [w for w in Upkeep(str(site.root), Settings(retention_days=1)).round(True) if w.table == LANDING]
    assert "soon" in work.trouble


def test_one_upkeep_at_a_time(site: Site) -> None:
    other = TableLease(str(site.root), "upkeep", "other", wall=site.wall)
    other.acquire()
    with pytest.raises(LeaseLost, match="held by other"):
        list(site.upkeep.round(thorough=False))
    other.release()
    assert [w.table for w in site.upkeep.round(thorough=False)] == [LANDING, "leases"]


def test_what_is_wrong_with_a_table_is_told_and_the_others_are_kept(site: Site) -> None:
    site.ship(5)
    Landing(str(site.root)).land([Gateway("g1", flow="water").open()])
    log = site.root / "landing" / "water" / "_delta_log" / f"{0:020}.json"
    log.write_text("no json")
    works = {w.table: w for w in site.upkeep.round(thorough=True)}
    assert "landing/water: expected a Delta table" in works["landing/water"].trouble
    assert works[LANDING].compacted == 5
    assert site.upkeep.totals.failures == 1


def test_leases_and_the_register_are_kept_small_too(site: Site) -> None:
    lease = TableLease(str(site.root), "fleet", "me", wall=site.wall, monotonic=site.wall)
    lease.acquire()
    for n in range(1, 6):
        for _ in range(15):
            site.now += 31
            lease.hold()
            site.tell("reader", n)
        site.keep()
    for name in ("leases", "readers"):
        assert site.data_files(name) <= 20
        assert site.log_files(name) <= 60
    lease.hold()


def test_in_the_collector_rounds_come_on_a_thread_of_their_own(site: Site) -> None:
    site.ship(10)
    schedule = UpkeepSchedule(str(site.root), Settings(every_s=0.01, compact_files=5))
    schedule.start()
    wait_until(lambda: schedule.totals["rounds"] > 1, "two rounds")
    schedule.stop()
    assert schedule.totals["compacted"] == 10
    assert schedule.totals["failures"] == 0
    never = UpkeepSchedule(str(site.root), Settings(every_s=0))
    never.start()
    never.stop()


def test_what_nobody_foresaw_is_told_and_the_next_round_comes(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    schedule = UpkeepSchedule(str(site.root), Settings(every_s=0.01))
    real, faults = Upkeep.round, iter([TypeError("no such column")])

    def once_wrong(upkeep: Upkeep, thorough: bool) -> Iterator[Work]:
        if fault := next(faults, None):
            raise fault
        return real(upkeep, thorough)

    monkeypatch.setattr(Upkeep, "round", once_wrong)
    schedule.start()
    wait_until(lambda: schedule.totals["rounds"], "a round")
    schedule.stop()
    assert (schedule.totals["failures"], schedule.totals["last_error"]) == (1, "TypeError: no such column")
    assert "upkeep: the next round tries again" in caplog.text


def test_the_table_of_models_of_which_each_training_writes_all_versions_stays_small(tmp_path: Path) -> None:
    registry = ModelRegistry(str(tmp_path))
    for number in range(1, 31):
        registry.add("air", lambda _, number=number: model_version(number))  # type: ignore[misc]
    done = {w.table: w for w in Upkeep(str(tmp_path), Settings(), keep_s=-60.0).round(thorough=True)}
    work = done["models"]
    assert (work.files, work.trouble) == (1, "")
    assert work.deleted == 29
    assert work.log_deleted > 20
    assert [v.version for v in registry.versions("air")] == list(range(30, 0, -1))


def test_by_hand_it_says_what_was_done(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.ship(10)
    monkeypatch.setenv("EDGERT_UPKEEP_COMPACT_FILES", "5")
    assert main(["central", "upkeep", "--root", str(site.root), "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(t["files"], t["compacted"], t["deleted"]) for t in told if t["table"] == f"landing/{FLOW}"] == [(2, 10, 0)]
    assert main(["central", "upkeep", "--root", str(site.root)]) == 0
    assert f"landing/{FLOW}" in capsys.readouterr().out
