"""Upkeep beside the fleet job's streams, with real Spark: they live, and the fleet table is what it has to be."""

from __future__ import annotations

import logging
import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from edgert.central.fleet.job import FleetJob
from edgert.central.tables.lease import TableLease
from edgert.central.tables.readers import Reach, Readers
from edgert.central.upkeep.upkeep import REST_S, Upkeep, Work
from edgert.core.settings.central import FleetJob as JobSettings
from edgert.core.settings.central import Upkeep as Settings
from tests.central.fleet_world import World
from tests.central.results_examples import DAY_S, FLOW, START, Gateway
from tests.central.spark_patience import wait_for_spark
from tests.central.upkeep_examples import LANDING
from tests.examples import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.xdist_group("spark")]
FLEET = f"fleet/{FLOW}"


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return World(spark, tmp_path)


def keep(world: World, wall: Callable[[], float] = time.time, rest_s: float = REST_S) -> dict[str, Work]:
    """A thorough round that keeps nothing for those who are not registered."""
    round_ = Upkeep(str(world.root), Settings(compact_files=2), keep_s=-60.0, rest_s=rest_s, wall=wall).round(True)
    return {work.table: work for work in round_}


def files(world: World, table: str) -> tuple[int, int]:
    """(data files, log files) on the disk."""
    found = [p for p in (world.root / table).rglob("*") if p.suffix in (".parquet", ".json")]
    return len([p for p in found if "_delta_log" not in p.parts]), len([p for p in found if "_delta_log" in p.parts])


def test_a_running_stream_lives_while_its_tables_are_kept_and_they_level_off(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(5)
    gateways = [Gateway("g1"), Gateway("g2")]
    world.landing.land([g.open() for g in gateways])
    # The job's own MERGE into the fleet table is in no register: elsewhere what is removed stays for an hour at least.
    Readers(str(world.root)).begin("merge", FLEET)
    job = FleetJob(
        world.spark, str(world.root), JobSettings(trigger_s=0.2), TableLease(str(world.root), "fleet", "me", 600.0)
    )
    job.tell_s = 0.5
    thread = threading.Thread(target=job.run)
    thread.start()
    done = []

    def exact() -> bool:
        try:
            world.check()
        except (AssertionError, DeltaError, OSError):  # the table is made while we look
            return False
        return True

    def ship(count: int) -> None:
        for _ in range(count):
            world.ship(rng.choice(gateways), rng.choice([0, 1, 1440]), rng.choice(["a", "b"]), rng.gauss(20, 5))

    try:
        ship(1)
        wait_for_spark(world.spark, exact, "the first batch")
        rounds = examples(2, 3)
        for _ in range(rounds):
            ship(15)
            done.append(keep(world, rest_s=0.0))
            ship(15)
            done.append(keep(world, rest_s=0.0))
            wait_for_spark(world.spark, exact, "an exact table")
        at = DeltaTable(str(world.root / LANDING)).version()
        wait_for_spark(world.spark, lambda: _reach(world).rows >= at, "the register")
        done.append(keep(world, rest_s=0.0))
        assert job.streams.states() == {LANDING: True}
        assert not job.streams.restarts
    finally:
        job.stop()
        thread.join(120)
    assert not thread.is_alive()
    assert [r.getMessage() for r in caplog.records if "stopped, starting again" in r.getMessage()] == []
    # Of the fleet table and the register the job was sometimes quicker: the next round does it.
    assert [d[LANDING].trouble for d in done] == [""] * len(done)
    assert sum(d[LANDING].compacted for d in done) >= 30 * rounds
    assert sum(d[LANDING].deleted for d in done) >= 30 * rounds
    data, log = files(world, LANDING)
    assert data == done[-1][LANDING].files
    assert log < 30 * rounds
    world.check()


def _reach(world: World) -> Reach:
    (reading,) = [r for r in Readers(str(world.root)).all() if r.table == LANDING]
    return reading.reach


def test_a_streaming_checkpoint_that_is_behind_is_waited_for(world: World, caplog: pytest.LogCaptureFixture) -> None:
    g = Gateway("g1")
    world.landing.land([g.open()])
    for n in range(5):
        world.ship(g, n, "a", float(n))
    world.run()
    (known,) = Readers(str(world.root)).all()
    assert known.reach.rows == 5
    for _ in range(3):
        for n in range(12):
            world.ship(g, n, "b", float(n))
        assert keep(world)[LANDING].held_by == "fleet-job"
    world.run()
    world.check()
    assert "reading all of it again" not in caplog.text
    assert keep(world)[LANDING].deleted > 30
    world.ship(g, 3, "c", 1.0)
    world.run()
    world.check()


def test_a_job_that_was_left_behind_reads_all_of_the_table_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    g = Gateway("g1")
    world.landing.land([g.open()])
    world.ship(g, 0, "a", 1.0)
    world.run()
    for _ in range(2):
        for n in range(12):
            world.ship(g, n, "b", float(n))
        keep(world, wall=lambda: time.time() + 8 * DAY_S)
    assert [r.left for r in Readers(str(world.root)).all()] == [True]
    assert files(world, LANDING)[0] == 2
    with caplog.at_level(logging.WARNING):
        world.run()
    assert "reading all of it again" in caplog.text
    world.check()
    assert [r.left for r in Readers(str(world.root)).all()] == [False]


def test_days_that_retention_dropped_stay_in_the_fleet_table_as_they_were(world: World) -> None:
    def now() -> float:
        return START + 5 * DAY_S

    g = Gateway("g1")
    world.landing.land([g.open()])
    for window in (0, 1, 4 * 1440):
        world.ship(g, window, "a", 1.0, 2.0)
    world.run()
    for _ in range(2):
        upkeep_ = Upkeep(str(world.root), Settings(compact_files=2, retention_days=2), keep_s=-3.2e9, wall=now)
        works = {w.table: w for w in upkeep_.round(thorough=True)}
        world.ship(g, 0, "a", 77.0, counts=False)
        world.ship(g, 4 * 1440, "a", 5.0)
        world.run()
        world.check()
    assert works[LANDING].days == 1
    assert DeltaTable(str(world.root / LANDING)).version() > 0


@pytest.mark.long
def test_retention_waits_for_a_stream_that_reads_all_again_since_its_checkpoint_was_deleted(world: World) -> None:
    g = Gateway("g1")
    world.landing.land([g.open()])
    world.ship(g, 5 * 1440, "a", 1.0)
    world.run()
    for n in range(4):
        world.ship(g, n, "late", float(n))

    def keep_two_days() -> Work:
        settings = Settings(compact_files=10_000, retention_days=2)
        round_ = Upkeep(str(world.root), settings, keep_s=86_400.0, wall=lambda: START + 5 * DAY_S).round(thorough=True)
        (work,) = [work for work in round_ if work.table == LANDING]
        return work

    assert keep_two_days().held_by == "fleet-job"
    checkpoint = world.root / "_spark" / "fleet" / FLOW
    shutil.rmtree(checkpoint)
    settings = JobSettings(trigger_s=0.2, max_files_per_trigger=1)
    job = FleetJob(world.spark, str(world.root), settings, TableLease(str(world.root), "fleet", "me", 600.0))
    job.tell_s = 0.5
    thread = threading.Thread(target=job.run)
    thread.start()
    try:
        for count in (1, 3):
            done = checkpoint / "commits" / str(count - 1)
            wait_for_spark(world.spark, done.exists, f"{count} batches")
            wait_for_spark(world.spark, lambda: _reach(world).log > 0, "the register")
            assert (keep_two_days().days, keep_two_days().held_by) == (0, "fleet-job")
        at = DeltaTable(str(world.root / LANDING)).version()
        wait_for_spark(world.spark, lambda: _reach(world).rows >= at, "all of it read")
    finally:
        job.stop()
        thread.join(120)
    assert keep_two_days().days == 1
    world.check()


def test_a_fleet_table_is_kept_small_and_a_rebuild_finds_it_as_it_was(world: World) -> None:
    g = Gateway("g1")
    world.landing.land([g.open()])
    for n in range(3):
        world.ship(g, n, "a", float(n))
        world.run()
    assert keep(world)[FLEET].compacted == 0, "it was written just now"
    done = keep(world, rest_s=-60.0)[FLEET]
    assert done.compacted >= 2
    assert done.files == 1
    world.check()
    world.ship(g, 2, "b", 1.0)
    world.run()
    world.check()
    for _ in range(2):
        keep(world)
    list(
        FleetJob(
            world.spark, str(world.root), JobSettings(), TableLease(str(world.root), "fleet", "me", 600.0)
        ).rebuild(FLOW)
    )
    world.check()
