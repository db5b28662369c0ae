"""The fleet job with real Spark: whatever came, and however often it is looked at, the table is the same."""

from __future__ import annotations

import datetime as dt
import math
import random
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from edgert.central.fleet.job import FleetJob
from edgert.central.spark.session import forget_tables
from edgert.central.spark.streams import NEW_COLUMNS
from edgert.central.tables.lease import LeaseLost, TableLease
from edgert.central.upkeep.table import KeptTable
from edgert.cli.main import main
from edgert.core.errors import EdgertError
from edgert.core.results.result_schema import Schema
from edgert.core.settings.central import FleetJob as Settings
from tests.central.fleet_world import World
from tests.central.results_examples import FLOW, SCHEMA, START, Gateway, contribution
from tests.central.spark_patience import wait_for_spark

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.xdist_group("spark")]


def test_contributions_of_two_gateways_merge_as_plain_python_would(world: World) -> None:
    """Also: null keys, two days, values whose squares would lose all digits, a late contribution, a lost checkpoint."""
    rng = random.Random(7)
    gateways = [Gateway("g1"), Gateway("g2")]
    world.landing.land([g.open() for g in gateways])

    def ship_some(count: int, base: float) -> None:
        for _ in range(count):
            values = [base + rng.gauss(0, 1) for _ in range(rng.randint(1, 4))]
            world.ship(rng.choice(gateways), rng.choice([0, 1, 1439, 1440]), rng.choice(["a", "b", None]), *values)

    ship_some(30, 1e6)
    world.run()
    world.check()

    ship_some(10, 1e6)
    world.run()
    world.check()
    before = world.fleet()

    shutil.rmtree(world.root / "_spark")
    world.run()
    world.check()
    assert len(world.fleet()) == len(before)


def test_windows_far_apart_in_one_batch_beside_many_that_it_does_not_touch(world: World) -> None:
    """Files are left out by when their windows begin; what is read and not touched stays as it is."""
    rng = random.Random(5)
    gateways = [Gateway("g1"), Gateway("g2")]
    world.landing.land([g.open() for g in gateways])
    for hour in range(0, 40, 4):
        for minute in (0, 1, 59):
            world.ship(rng.choice(gateways), hour * 60 + minute, rng.choice(["a", None]), rng.gauss(0, 1), 4.0)
    world.run()
    table = DeltaTable(str(world.root / "fleet" / FLOW))
    table.update(predicate="lo < 100", updates={"gateways": "7"})
    for window in (8 * 60, 8 * 60 + 59, 36 * 60 + 1):
        for source in ("a", None):
            world.ship(gateways[0], window, source, 9.0, rng.gauss(0, 1))
    world.run()
    changed = {round((r["window_start"].timestamp() - START) / 60) for r in world.fleet() if r["gateways"] != 7}
    assert changed == {8 * 60, 8 * 60 + 59, 36 * 60 + 1}
    shutil.rmtree(world.root / "_spark")
    world.run()
    world.check()


def test_a_table_that_says_wrong_things_is_made_anew_and_other_days_stay(world: World) -> None:
    g = Gateway("g1")
    world.landing.land([g.open()])
    for window, source in ((0, "a"), (1, "b"), (1440, "a"), (1440, None)):
        world.ship(g, window, source, 1.0, 2.0 + window)
    world.run()
    right = world.fleet()
    table = DeltaTable(str(world.root / "fleet" / FLOW))
    table.delete("source = 'b'")
    table.update(predicate="source = 'a'", updates={"n": "77"})
    table.update(predicate="source IS NULL", updates={"source": "'nobody'"})
    stray = {**right[0], "window_start": right[0]["window_start"] - dt.timedelta(days=9)}
    stray["day"] = stray["window_start"].date()
    write_deltalake(table, pa.Table.from_pylist([stray], schema=pa.schema(table.schema().to_arrow())), mode="append")
    job = FleetJob(world.spark, str(world.root), Settings())
    told = list(job.rebuild(FLOW))
    assert [count for _, count in told] == [2, 2]
    assert world.fleet() == [stray, *right], "of the day of which nothing has landed nothing is known"
    with pytest.raises(EdgertError, match="landing/nothing"):
        list(job.rebuild("nothing"))


def test_a_fleet_table_put_back_from_an_older_copy_is_made_exact(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    g = Gateway("g1")
    world.landing.land([g.open()])
    world.ship(g, 0, "a", 1.0)
    world.run()
    shutil.copytree(world.root / "fleet", tmp_path / "nightly")
    world.ship(g, 1, "a", 2.0)
    world.run()
    world.run()
    assert "reading all of it again" not in caplog.text
    shutil.rmtree(world.root / "fleet")
    shutil.copytree(tmp_path / "nightly", world.root / "fleet")
    world.ship(g, 2, "a", 3.0)
    world.run()
    assert "fleet/air was removed or put back from an older copy, reading all of it again" in caplog.text
    world.check()


def test_fallback_replaces_what_its_gateway_had_shipped_since(world: World) -> None:
    g, other = Gateway("g1"), Gateway("g2")
    world.landing.land([g.open(), other.open()])
    world.ship(g, 0, "a", 1.0, 2.0)
    world.ship(other, 1, "a", 5.0)
    world.ship(g, 1, "a", 9.0, counts=False)
    world.ship(g, 2, "only-void", 9.0, counts=False)
    world.run()
    assert len(world.fleet()) == 3

    after = Gateway("g1", epoch=2 << 32)
    world.landing.land([after.open(parent=g.epoch, cut={0: 2})])
    world.run()
    world.check()

    world.ship(after, 1, "a", 7.0)
    # What an old outbox still sends of the void part changes nothing.
    world.ship(g, 0, "a", 100.0, counts=False)
    world.run()
    world.check()


def test_what_became_void_is_gone_also_for_a_job_that_lost_its_place_before_it_read_of_that(world: World) -> None:
    g = Gateway("g1")
    world.landing.land([g.open()])
    world.ship(g, 0, "a", 1.0)
    world.ship(g, 1, "only-void", 9.0, counts=False)
    world.run()
    assert len(world.fleet()) == 2

    after = Gateway("g1", epoch=2 << 32)
    world.landing.land([after.open(parent=g.epoch, cut={0: 2})])
    shutil.rmtree(world.root / "_spark")
    world.run()
    world.check()


def test_new_aggregate_widens_the_fleet_table(world: World) -> None:
    g = Gateway("g1")
    world.landing.land([g.open()])
    world.ship(g, 0, "a", 1.0)
    world.run()
    new = Gateway("g1", epoch=2 << 32, schema=Schema(60.0, SCHEMA.keys, (*SCHEMA.aggregates, ("top", "max"))))
    world.landing.land([new.open(g.epoch, {0: 2}), new.rows([*contribution(1, "a", 4.0), 4.0])])
    shutil.rmtree(world.root / "_spark")
    world.run()
    assert [(r["hi"], r["top"]) for r in world.fleet()] == [(1.0, None), (4.0, 4.0)]


@pytest.fixture
def running(world: World) -> Iterator[FleetJob]:
    """The job as it runs for good, in a thread of its own."""
    lease = TableLease(str(world.root), "fleet", "running", 600.0)
    job = FleetJob(world.spark, str(world.root), Settings(trigger_s=0.2), lease)
    thread = threading.Thread(target=job.run)
    thread.start()
    yield job
    job.stop()
    thread.join(120)
    assert not thread.is_alive()


def test_running_job_finds_new_tables_survives_new_columns_and_compaction(world: World, running: FleetJob) -> None:
    def shows(flow: str, *expected: tuple[float, float | None]) -> bool:
        try:
            return [(r["hi"], r.get("top")) for r in world.fleet(flow)] == list(expected)
        except (DeltaError, KeyError, OSError):  # the table is made while we look
            return False

    g = Gateway("g1")
    world.landing.land([g.open()])
    world.ship(g, 0, "a", 1.0)
    wait_for_spark(world.spark, lambda: shows(FLOW, (1.0, None)), "the first window")

    away = Gateway("g1", flow="water")
    world.landing.land([away.open(), away.rows(contribution(0, "w", 8.0))])
    wait_for_spark(world.spark, lambda: shows("water", (8.0, None)), "the second table")

    new = Gateway("g1", epoch=2 << 32, schema=Schema(60.0, SCHEMA.keys, (*SCHEMA.aggregates, ("top", "max"))))
    world.landing.land([new.open(g.epoch, {0: 2}), new.rows([*contribution(1, "a", 4.0), 4.0])])
    world.landing.land([new.rows([*contribution(1, "a", 3.0), 3.0])])
    wait_for_spark(world.spark, lambda: shows(FLOW, (1.0, None), (4.0, 4.0)), "the new column")
    wait_for_spark(world.spark, lambda: [r["n"] for r in world.fleet()] == [1, 2], "each contribution once")
    assert running.streams.restarts[f"landing/{FLOW}", NEW_COLUMNS] == 1

    kept = KeptTable(str(world.root), f"landing/{FLOW}")
    assert sum(kept.compact(at_least=2, rests_since=math.inf)) > 0
    world.landing.land([new.rows([*contribution(2, "a", 5.0), 5.0])])
    wait_for_spark(world.spark, lambda: shows(FLOW, (1.0, None), (4.0, 4.0), (5.0, 5.0)), "a window after compaction")

    with pytest.raises(LeaseLost, match="held by"):
        FleetJob(world.spark, str(world.root), Settings(), TableLease(str(world.root), "fleet", "another")).run_once()


def test_job_that_lost_its_lease_commits_nothing(world: World) -> None:
    g = Gateway("g1")
    world.landing.land([g.open()])
    world.ship(g, 0, "a", 1.0)
    world.run()
    before = DeltaTable(str(world.root / "fleet" / FLOW)).version()

    now = [time.time() + 1]
    mine = TableLease(str(world.root), "fleet", "mine", wall=lambda: now[0])
    job = FleetJob(world.spark, str(world.root), Settings(), mine)
    hold = mine.hold

    def lose_it() -> None:
        # It runs out while a batch is under way, and another takes it.
        mine.hold = hold  # type: ignore[method-assign]
        hold()
        now[0] += 61
        TableLease(str(world.root), "fleet", "other", wall=lambda: now[0]).acquire()

    mine.hold = lose_it  # type: ignore[method-assign]
    world.ship(g, 1, "a", 2.0)
    with pytest.raises(Exception, match="LeaseLost"):
        job.run_once()
    assert [r["hi"] for r in world.fleet()] == [1.0]
    # That it came is its only trace.
    assert DeltaTable(str(world.root / "fleet" / FLOW)).version() <= before + 1


def test_a_damaged_table_of_a_flow_keeps_no_other_from_being_processed_once(world: World) -> None:
    for flow in ("aaa", "bbb", FLOW):
        g = Gateway("g1", flow=flow)
        world.landing.land([g.open()])
        world.landing.land([g.rows(contribution(0, "a", 1.0))])
    for path in (world.root / "landing" / "aaa").rglob("day=20*/*.parquet"):
        path.unlink()
    (log, *_) = (world.root / "landing" / "bbb" / "_delta_log").glob("*1.json")
    log.write_text("no json")
    with pytest.raises(EdgertError) as caught:
        world.run()
    first, second = str(caught.value).splitlines()
    assert first.startswith("landing/aaa: could not be processed: [FAILED_READ_FILE")
    assert second.startswith("landing/bbb: could not be processed: ")
    assert first.endswith("from a copy")
    assert second.endswith("from a copy")
    assert [row["n"] for row in world.fleet()] == [1]
    job = FleetJob(world.spark, str(world.root), Settings(), TableLease(str(world.root), "fleet", "test", 600.0))
    with pytest.raises(EdgertError, match=r"^fleet/aaa: could not be made anew: \[FAILED_READ_FILE.*from a copy$"):
        list(job.rebuild("aaa"))


def test_what_spark_keeps_of_a_log_can_be_forgotten(world: World) -> None:
    gateway = Gateway("g1")
    world.landing.land([gateway.open()])
    world.ship(gateway, 0, "a", 1.0)
    world.run()
    java: Any = world.spark._jvm

    def kept() -> Any:
        log = java.org.apache.spark.sql.delta.DeltaLog.forTable(
            world.spark._jsparkSession, str(world.root / "landing" / FLOW)
        )
        return java.java.lang.System.identityHashCode(log)

    before = kept()
    assert kept() == before
    forget_tables(world.spark)
    assert kept() != before
    world.ship(gateway, 0, "a", 2.0)
    world.run()
    world.check()


def test_a_version_with_other_keys_has_a_fleet_table_of_its_own_and_what_it_makes_void_is_void(world: World) -> None:
    first, second, third = Gateway("g1"), Gateway("g1", 2 << 32), Gateway("g1", 3 << 32)
    second.schema = Schema(60.0, (("room", "string"),), SCHEMA.aggregates)
    world.landing.land([first.open()])
    world.ship(first, 0, "a", 1.0)
    world.ship(first, 1, "a", 9.0, counts=False)
    world.run()
    # It fell back to what was before the last batch, took other keys, and went back to the former ones.
    world.landing.land([second.open(parent=first.epoch, cut={0: 2}), second.rows(contribution(1, "kitchen", 4.0))])
    world.run()
    world.check()
    world.landing.land([third.open(parent=second.epoch, cut={0: 2})])
    world.ship(third, 2, "a", 5.0)
    world.run()
    world.check()
    (row,) = world.fleet(f"{FLOW}_v2")
    assert (row["room"], row["n"], row["total"]) == ("kitchen", 1, 4.0)


def test_a_rebuild_makes_all_tables_of_a_flow_anew_and_by_its_own_name_one(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("edgert.central.spark.session.running", lambda name, master: nullcontext(world.spark))
    first, second, other = Gateway("g1"), Gateway("g1", 2 << 32), Gateway("g1", flow=f"{FLOW}_volume")
    second.schema = Schema(60.0, (("room", "string"),), SCHEMA.aggregates)
    world.landing.land([first.open(), first.rows(contribution(0, "a", 1.0)), other.open()])
    world.landing.land([second.open(first.epoch, {0: 2}), second.rows(contribution(1, "kitchen", 4.0))])

    def rebuild(name: str) -> list[str]:
        assert main(["central", "rebuild", name, "--root", str(world.root)]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if line.startswith("fleet/")]

    later = f"fleet/{FLOW}_v2: 1 days, 1 windows made anew"
    assert rebuild(FLOW) == [f"fleet/{FLOW}: 1 days, 1 windows made anew", later]
    assert rebuild(f"{FLOW}_v2") == [later]
    assert [row["room"] for row in world.fleet(f"{FLOW}_v2")] == ["kitchen"]
    assert main(["central", "rebuild", "nothing", "--root", str(world.root)]) == 1
