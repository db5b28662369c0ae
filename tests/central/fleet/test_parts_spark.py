"""A large batch comes into the fleet table in parts: what may be known is merged, all else appended."""

from __future__ import annotations

import random
import shutil
from typing import Any

import pyspark.sql
import pytest

from edgert.central.fleet import table as fleet_table
from edgert.central.fleet.job import FleetJob
from edgert.central.fleet.merge import WindowMerge
from edgert.central.tables.lease import TableLease
from edgert.core.errors import EdgertError
from edgert.core.settings.central import FleetJob as Settings
from tests.central.fleet_world import World
from tests.central.results_examples import FLOW, Gateway

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.mark.parametrize("room", [pytest.param(100_000, id="few"), pytest.param(0, id="many", marks=pytest.mark.long)])
def test_of_many_windows_those_that_begin_as_known_ones_do_are_merged_and_the_others_appended(
    world: World, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(fleet_table, "_MANY", 1)
    monkeypatch.setattr(fleet_table, "_FEW", room)
    first, second = Gateway("g1"), Gateway("g2")
    world.landing.land([first.open(), second.open()])
    for window in (0, 1, 1440):
        world.ship(first, window, "a", 1.0, 2.0)
    world.run()
    world.ship(second, 1, "b", 3.0)
    world.ship(first, 2, None, 4.0)
    job = FleetJob(world.spark, str(world.root), Settings(), TableLease(str(world.root), "fleet", "test", 600.0))
    job.run_once()
    world.check()
    fence = ["WRITE"]
    assert world.writes() == [*fence, "WRITE", *fence, "WRITE", "WRITE"], "1/b beside 1/a that is known, then 2"

    world.ship(first, 3, "a", 5.0)
    world.ship(second, 0, "a", 6.0)
    world.run()
    world.check()
    assert world.writes()[-2:] == ["MERGE", "WRITE"]

    shutil.rmtree(world.root / "_spark")
    world.run()
    world.check()
    assert world.writes()[-1] == "MERGE", "all of them are known"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_batches_of_windows_here_and_there_are_parted_without_loss(
    world: World, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Windows apart by minutes, by an hour (within which spans are told as one), and by a day."""
    monkeypatch.setattr(fleet_table, "_MANY", 1)
    monkeypatch.setattr(fleet_table, "_FEW", 3)
    rng = random.Random(seed)
    gateways = [Gateway("g1"), Gateway("g2")]
    world.landing.land([gateway.open() for gateway in gateways])
    for _ in range(6):
        for _ in range(rng.randint(1, 5)):
            window = rng.choice((rng.randint(0, 5), rng.randint(30, 75), 130, 1439, 1440))
            world.ship(rng.choice(gateways), window, rng.choice(("a", "b")), rng.gauss(0, 1))
        world.run()
        world.check()


def test_a_job_that_ends_between_what_it_merges_and_what_it_appends_does_both_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_table, "_MANY", 1)
    first, second = Gateway("g1"), Gateway("g2")
    world.landing.land([first.open(), second.open()])
    world.ship(first, 0, "a", 1.0, 2.0)
    world.run()
    world.ship(second, 0, "a", 3.0)
    world.ship(second, 0, "b", 4.0)
    world.ship(second, 1, "a", 5.0)

    begun = WindowMerge._append

    def ends(table: WindowMerge, windows: Any, *_args: object) -> None:
        if windows.count() if isinstance(windows, pyspark.sql.DataFrame) else windows.num_rows:
            raise OSError("no space left on device")
        begun(table, windows)

    for at, expected in (("_append", [3]), ("append", [3, 1])):  # of what is few, and of what is many
        with monkeypatch.context() as patch:
            patch.setattr(WindowMerge, at, ends)
            with pytest.raises(EdgertError, match=f"landing/{FLOW}: could not be processed: OSError: no space left"):
                world.run()
        assert [row["n"] for row in world.fleet()] == expected
    world.run()
    world.check()
