"""Windows that are merged when they are read are those that the fleet job makes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from edgert.central.fleet import on_reading
from edgert.core.results.result_schema import Schema
from tests.central.results_examples import DAY_S, FLOW, START, Gateway, contribution
from tests.central.sketch_examples import KIND_OF, sketch

if TYPE_CHECKING:
    from tests.central.fleet_world import World

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
EXACT = ("window_start", "window_end", "source", "n", "lo", "hi", "gateways", "day")
ABOUT = ("t", "v", "total")
"""Sums may be added up in another order."""


def merged(world: World) -> list[dict[str, Any]]:
    columns, rows, notes = on_reading.merged(str(world.root), FLOW, 100_000, has_fleet=True)
    assert notes == []
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    return sorted(found, key=lambda row: (row["window_start"], row.get("source") or ""))


def alike(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert [[row[name] for name in EXACT] for row in one] == [[row[name] for name in EXACT] for row in other]
    for name in ABOUT:
        assert [row[name] is None for row in one] == [row[name] is None for row in other], name
        values = [[row[name] for row in rows if row[name] is not None] for rows in (one, other)]
        assert values[0] == pytest.approx(values[1], rel=1e-6, abs=1e-12), name


def said(world: World, name: str = FLOW) -> str:
    [note] = on_reading.read(str(world.root), name, START + DAY_S * 9999).notes
    return note


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_windows_of_random_gateways_with_fallbacks_are_those_of_the_fleet_table(world: World, seed: int) -> None:
    rng = random.Random(seed)
    gateways = {name: Gateway(name) for name in ("g1", "g2", "g3")}
    world.landing.land([gateway.open() for gateway in gateways.values()])
    for _ in range(2):
        before = None
        for _ in range(30):
            gateway = gateways[rng.choice(sorted(gateways))]
            if rng.random() < 0.1:  # it falls back, a few batches at most
                cut = {0: max(1, gateway.sequences[0] - rng.randrange(3))}
                new = Gateway(gateway.name, epoch=gateway.epoch + (1 << 32))
                world.landing.land([new.open(gateway.epoch, cut)])
                gateways[gateway.name] = new
                continue
            values = [rng.gauss(1e6, 1e-3) for _ in range(rng.randrange(1, 4))]
            window = rng.choice((rng.randrange(8), 1440 + rng.randrange(3)))
            source = rng.choice(("a", "b", None))
            world.landing.land([gateway.rows(contribution(window, source, *values))])
            before = before or said(world)
        assert before is not None
        assert "rows of landing/air are not merged" in before or "fleet/air is not there yet" in before
        expected = merged(world) if "is not there yet" not in before else None
        world.run()
        if expected is not None:
            alike(expected, world.fleet())
        alike(merged(world), world.fleet())
        assert said(world).startswith("Spark has merged all that landed: ")


def test_how_far_spark_is_behind_is_said_in_rows_and_time(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "edgert.central.fleet")
    gateway = Gateway("g1")
    world.landing.land([gateway.open()])
    world.ship(gateway, 0, "a", 1.0)
    world.run()
    assert caplog.messages[-2:] == [
        "Spark is behind: 2 of 2 rows of landing/air are not merged",
        "fleet/air: the first windows since the start are written",
    ]
    assert said(world) == "Spark has merged all that landed: 2 rows of landing/air"
    for window in (1, 2, 2):
        world.ship(gateway, window, "a", float(window))
    note = said(world)
    assert note.startswith("Spark is behind: 3 of 5 rows of landing/air are not merged, the first of which landed ")
    assert "merged here, as it is read" in note
    assert "`edgert central show air` merges them as it reads" in said(world, f"fleet/{FLOW}")
    found = on_reading.read(str(world.root), FLOW, 0.0)
    assert [row[found.columns.index("t")] for row in found.rows] == [2.0, 1.0, 1.0]
    world.run()
    world.check()
    assert said(world) == "Spark has merged all that landed: 5 rows of landing/air"


def test_windows_whose_contributions_are_gone_stand_as_the_fleet_table_has_them(world: World) -> None:
    gateway = Gateway("g1")
    world.landing.land([gateway.open()])
    for day in (0, 1):
        world.ship(gateway, day * 1440, "a", 1.0 + day)
    world.run()
    from deltalake import DeltaTable

    DeltaTable(str(world.root / "landing" / FLOW)).delete("day = '2024-10-04'")  # as by retention
    world.ship(gateway, 1440, "a", 6.0)
    alike(merged(world), sorted(merged(world), key=lambda row: row["window_start"]))
    assert [row["t"] for row in merged(world)] == [1.0, 4.0]
    world.run()
    alike(merged(world), world.fleet())


def test_sketches_are_united_as_spark_unites_them(world: World) -> None:
    schema = Schema(60.0, (("source", "string"),), (("n", "count"), *((how[-3:], how) for how in KIND_OF)))
    rng = random.Random(4)
    for name in ("g1", "g2"):
        gateway = Gateway(name, schema=schema)
        world.landing.land([gateway.open()])
        for window in range(3):
            values = [rng.gauss(20, 5) for _ in range(rng.choice((0, 3, 40)))]
            sketches = [sketch(how, values) if values else None for how in KIND_OF]
            bounds = contribution(window, "a", 1.0)[:3]
            world.landing.land([gateway.rows([*bounds, len(values), *sketches])])
    world.run()
    names = [name for name in merged(world)[0] if name not in ("source",)]
    assert [[row[name] for name in names] for row in merged(world)] == [
        [row[name] for name in names] for row in world.fleet()
    ]
