"""How windows come into the fleet table, and what they say of many gateways and of values that are hard to add up."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from edgert.central.fleet import merge as windows_table
from edgert.central.fleet import recompute
from edgert.central.fleet.columns import fleet_columns
from edgert.central.fleet.job import FleetJob
from edgert.central.fleet.merge import WindowMerge
from edgert.central.fleet.table import FleetTable
from edgert.central.fleet.table import _settings as settings_of
from edgert.central.fleet.touched_windows import Touched
from edgert.central.spark.session import set_for
from edgert.central.tables.lease import LeaseLost, TableLease
from edgert.central.tables.query import query
from edgert.central.tables.table import CommitConflict
from edgert.core.results.result_schema import Schema
from edgert.core.settings.central import FleetJob as Settings
from tests.central.fleet_world import World
from tests.central.results_examples import DAY_S, FLOW, SCHEMA, START, Gateway, contribution

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOUCHED = Touched(days={dt.date(2024, 10, 4)}, spans=[(1728000000_000_000, 1728086399_000_000)])
"""All windows of that day."""
pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.mark.long
def test_a_day_that_is_written_often_is_compacted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_table, "_COMPACT_AFTER", 2)
    gateway = Gateway("g1")
    world.landing.land([gateway.open()])
    lease = TableLease(str(world.root), "fleet", "test", 600.0)
    job = FleetJob(world.spark, str(world.root), Settings(max_files_per_trigger=1), lease)
    for window in (0, 1, 1440, 2):
        world.ship(gateway, window, "a", 1.0)
    job.run_once()
    world.check()
    assert world.writes().count("OPTIMIZE") == 1
    table = DeltaTable(str(world.root / "fleet" / FLOW))
    assert len(table.file_uris(file_pruning_predicate="day = '2024-10-04'")) == 2, "two made one, and one since"


def test_a_batch_has_settings_of_its_size_and_leaves_none_behind(spark: SparkSession) -> None:
    partitions, interpreted = "spark.sql.shuffle.partitions", "spark.sql.codegen.factoryMode"
    before = spark.conf.get(partitions), spark.conf.get(interpreted)
    for rows, void, expected in (
        (100, False, (before[0], "NO_CODEGEN")),
        (100, True, before),
        (20_000, False, before),
        (4_000_000, False, ("16", before[1])),
    ):
        with suppress(ZeroDivisionError), set_for(spark, settings_of(spark, Touched(rows=rows, void=void))):
            assert (spark.conf.get(partitions), spark.conf.get(interpreted)) == expected
            raise ZeroDivisionError
        assert (spark.conf.get(partitions), spark.conf.get(interpreted)) == before


def a_window(spark: SparkSession, n: int) -> DataFrame:
    return spark.sql(
        "SELECT TIMESTAMP'2024-10-04 00:00:00' AS window_start, TIMESTAMP'2024-10-04 00:01:00' AS window_end, "
        f"'a' AS source, {n}L AS n, 1D AS t, NULL AS v, 1D AS lo, 1D AS hi, 1D AS total, 1 AS gateways, "
        "DATE'2024-10-04' AS day"
    )


class Losing(TableLease):
    holds = 1_000
    """So often it is held yet."""

    def hold(self) -> None:
        if not self.holds:
            raise LeaseLost("lost")
        self.holds -= 1


class Confident(TableLease):
    def hold(self) -> None:
        pass


@pytest.fixture
def rivals(world: World) -> tuple[WindowMerge, WindowMerge]:
    """Two that hold the lease by their own word, as one that was stopped at the wrong moment does."""
    now = [0.0]
    old, new = (Confident(str(world.root), "fleet", name, wall=lambda: now[0]) for name in ("old", "new"))
    old.acquire()
    now[0] = 100.0
    new.acquire()
    uri = str(world.root / "fleet" / FLOW)
    return WindowMerge(uri, old), WindowMerge(uri, new)


Write = Callable[[WindowMerge, "DataFrame"], object]
WRITES: dict[str, Write] = {
    "append": lambda table, windows: table.append(windows, TOUCHED),
    "merge": lambda table, windows: table.merge(windows, TOUCHED, SCHEMA),
    "merge few": lambda table, windows: table.merge_few(windows, TOUCHED, SCHEMA),
    "put a day": lambda table, windows: table.put_day(windows, dt.date(2024, 10, 4)),
}


@pytest.mark.parametrize("name", [name for name in WRITES if name != "put a day"])
def test_who_lost_the_lease_while_writing_does_not_count_the_batch_as_done(world: World, name: str) -> None:
    """What it wrote is what the next holder would: but another may have written since, so that one does it again."""
    lease = Losing(str(world.root), "fleet", "me", 600.0)
    lease.acquire()
    table = WindowMerge(str(world.root / "fleet" / FLOW), lease)
    table.widen(SCHEMA)
    lease.holds = 1
    with pytest.raises(LeaseLost):
        WRITES[name](table, a_window(world.spark, 1))
    assert [row["n"] for row in world.fleet()] == [1]


def test_what_an_older_token_begins_to_write_is_refused(world: World, rivals: tuple[WindowMerge, WindowMerge]) -> None:
    zombie, holder = rivals
    zombie.widen(SCHEMA)
    zombie.append(a_window(world.spark, 1), TOUCHED)
    assert len(world.fleet()) == 1
    holder.widen(SCHEMA)
    for write in WRITES.values():
        with pytest.raises(LeaseLost, match="written by another since"):
            write(zombie, a_window(world.spark, 2))
    assert [row["n"] for row in world.fleet()] == [1]
    WRITES["merge"](holder, a_window(world.spark, 3))
    assert [row["n"] for row in world.fleet()] == [3]


@pytest.mark.parametrize("known", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize("name", WRITES)
def test_what_an_older_token_is_about_to_write_when_a_newer_one_comes_has_no_effect(
    world: World, rivals: tuple[WindowMerge, WindowMerge], monkeypatch: pytest.MonkeyPatch, name: str, known: bool
) -> None:
    zombie, holder = rivals
    zombie.widen(SCHEMA)
    if known:
        zombie.append(a_window(world.spark, 1), TOUCHED)
    looked = zombie._next

    def too_late() -> int:
        number = looked()
        holder.widen(SCHEMA)
        return number

    monkeypatch.setattr(zombie, "_next", too_late)
    with pytest.raises((LeaseLost, CommitConflict), match=r"was left out|Concurrent"):
        WRITES[name](zombie, a_window(world.spark, 2))
    assert [row["n"] for row in world.fleet()] == [1] * known


@pytest.mark.parametrize("how", ["merge_few", "merge"])
def test_windows_replace_delete_and_join_what_the_table_says(world: World, how: str) -> None:
    """Also: keys that are null, not a number, or alike once they stand side by side; few new ones get a file."""
    keys = (("text", "string"), ("other", "string"), ("Number", "double"), ("yes", "boolean"))
    schema = Schema(60.0, keys, (("n", "count"),))
    lease = TableLease(str(world.root), "fleet", "me", 600.0)
    lease.acquire()
    table = WindowMerge(str(world.root / "fleet" / FLOW), lease)
    table.widen(schema)
    merge = partial(getattr(table, how), touched=TOUCHED, schema=schema)
    texts, numbers = (None, "", "a", "a'", "1:a", ":"), (None, 0.0, -1.5, math.nan, 1e300)
    windows = list(itertools.product(range(2), texts, texts[:4], numbers, (None, True, False)))
    names = ", ".join(f"`{name}`" for name, _ in keys)

    def frame(rows: Iterable[tuple[Any, ...]], n: int, gateways: int) -> DataFrame:
        start = "timestamp_seconds(1728000000 + 60 * window)"
        return world.spark.createDataFrame(
            [(*row, n, gateways) for row in rows],
            "window int, text string, other string, Number double, yes boolean, n long, gateways int",
        ).selectExpr(
            f"{start} AS window_start", f"{start} + INTERVAL 1 MINUTE AS window_end", *names.split(", "),
            "n", "gateways", "DATE'2024-10-04' AS day",
        )  # fmt: skip

    def shown() -> Counter[tuple[Any, ...]]:
        rows = query(DeltaTable(str(world.root / "fleet" / FLOW)))
        return Counter(
            (int(r["window_start"].timestamp() - 1728000000) // 60, *(repr(r[name]) for name, _ in keys), r["n"])
            for r in rows
        )

    def expected(**told: Iterable[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
        return Counter((w, *map(repr, rest), int(n[1:])) for n, rows in told.items() for w, *rest in rows)

    first, rest = windows[: len(windows) // 2], windows[len(windows) // 2 :]
    merge(frame(first, 1, 1))
    assert shown() == expected(_1=first)
    files = len(DeltaTable(str(world.root / "fleet" / FLOW)).file_uris())
    merge(frame(windows[10:], 2, 1))
    assert shown() == expected(_1=first[:10], _2=windows[10:])
    if how == "merge_few":
        assert len(DeltaTable(str(world.root / "fleet" / FLOW)).file_uris()) == files + 1
    merge(frame(windows[:20], 3, 0))
    assert shown() == expected(_2=windows[20:]), f"{len(rest)} of another file stay"


def test_a_small_batch_is_written_by_this_process_and_a_time_of_the_far_future_does_not_stop_it(world: World) -> None:
    """An older collector let it in; as text it would be too large for `deltalake`."""
    g = Gateway("g1")
    far = int(dt.datetime(2300, 1, 1, tzinfo=dt.UTC).timestamp() - START) // 60
    world.landing.land([g.open()])
    for value in (1.0, 2.0):
        world.landing.land([g.rows(contribution(0, "a", value), contribution(far, "a", value))])
        world.run()
    assert [r["n"] for r in world.fleet() if r["window_start"].year == 2024] == [2]
    history = DeltaTable(str(world.root / "fleet" / FLOW)).history()
    assert {e["engineInfo"][:8] for e in history if e["operation"] in ("MERGE", "WRITE")} == {"delta-rs"}


def test_a_batch_beside_another_commit_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = TableLease(str(world.root), "fleet", "me", 600.0)
    table = FleetTable(str(world.root), FLOW, lease)
    tries: list[object] = []

    def conflicts(batch: object) -> None:
        tries.append(batch)
        if len(tries) < 3:
            raise CommitConflict("another came first")

    monkeypatch.setattr(table, "_update", conflicts)
    table.update(world.spark.range(1), 0)
    assert len(tries) == 3


def test_a_table_of_an_older_version_gets_columns_and_properties(world: World) -> None:
    uri = str(world.root / "fleet" / FLOW)
    world.spark.sql(f"CREATE TABLE delta.`{uri}` (window_start TIMESTAMP, day DATE) USING delta PARTITIONED BY (day)")
    lease = TableLease(str(world.root), "fleet", "me", 600.0)
    lease.acquire()
    WindowMerge(uri, lease).widen(SCHEMA)
    made = DeltaTable(uri)
    assert made.metadata().configuration.items() >= windows_table.PROPERTIES.items()
    assert {f.name for f in made.schema().fields} == {name for name, _ in fleet_columns(SCHEMA)}


def test_a_writer_whose_stream_was_replaced_in_its_process_writes_no_more(world: World) -> None:
    lease = TableLease(str(world.root), "fleet", "me", 600.0)
    lease.acquire()
    uri = str(world.root / "fleet" / FLOW)
    old, new = WindowMerge(uri, lease), WindowMerge(uri, lease)
    old.widen(SCHEMA)
    old.merge_few(a_window(world.spark, 1), TOUCHED, SCHEMA)
    new.widen(SCHEMA)
    for write in WRITES.values():
        with pytest.raises(LeaseLost, match="written by another since"):
            write(old, a_window(world.spark, 7))
    assert [row["n"] for row in world.fleet()] == [1]


def test_a_stream_that_starts_again_under_the_same_token_goes_on_writing(world: World) -> None:
    """As after new columns, or a batch that failed: its table is known anew, and the lease is the same."""
    lease = TableLease(str(world.root), "fleet", "me", 600.0)
    lease.acquire()
    for n in range(1, 3):
        table = WindowMerge(str(world.root / "fleet" / FLOW), lease)
        table.widen(SCHEMA)
        table.merge(a_window(world.spark, n), TOUCHED, SCHEMA)
        table.merge(a_window(world.spark, n).where("false"), TOUCHED, SCHEMA)
        assert [row["n"] for row in world.fleet()] == [n]


@pytest.mark.parametrize(
    "bits",
    [pytest.param(recompute.MOST_BITS, id="by bits"), pytest.param(0, id="by names", marks=pytest.mark.long)],
)
def test_gateways_of_a_window_are_counted_each_once(world: World, monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    monkeypatch.setattr(recompute, "MOST_BITS", bits)
    gateways = [Gateway(f"g{number:03}") for number in range(130)]
    world.landing.land([gateway.open() for gateway in gateways])
    for gateway in (*gateways[60:], *gateways[::3], gateways[0]):
        world.ship(gateway, 0, "a", 1.0)
    world.ship(gateways[63], 1, "a", 1.0)
    world.run()
    world.check()
    assert [row["gateways"] for row in world.fleet()] == [90, 1]


def test_variances_of_values_close_to_each_other_keep_their_digits(world: World) -> None:
    """Against exact fractions. A mean is known to some 1e-16 of itself, so nothing can be better than that."""
    rng = random.Random(3)
    gateways = [Gateway(f"g{number}") for number in range(5)]
    world.landing.land([gateway.open() for gateway in gateways])
    cases = {0: (1e9, 1.0), 1: (1e6, 1e-3), 2: (0.0, 1e-9), 3: (-273.15, 50.0), 4: (5.0, 0.0), 5: (1e100, 1e90)}
    values: dict[int, list[float]] = {window: [] for window in cases}
    for window, (base, spread) in cases.items():
        for gateway in gateways:
            some = [base + spread * rng.gauss(0, 1) for _ in range(rng.randint(1, 30))]
            values[window] += some
            world.ship(gateway, window, "a", *some)
    world.run()
    found = {round((row["window_start"].timestamp() / DAY_S - 20_000) * 1440): row["v"] for row in world.fleet()}
    for window, (base, spread) in cases.items():
        exact = float(statistics.variance([Fraction(value) for value in values[window]]))
        tolerance = 1e-12 + 20 * 2.2e-16 * abs(base) / (spread or 1.0)
        assert found[window] == pytest.approx(exact, rel=tolerance, abs=1e-28), (window, base, spread)


def test_values_at_the_end_of_their_types_stop_no_stream(spark: SparkSession) -> None:
    """The collector refuses them; a table may hold what an older one let in."""
    schema = Schema(60.0, (), (("n", "count"), ("t", "mean")))
    rows = spark.sql(f"""
        SELECT gateway, 1L AS epoch, 0 AS stream, sequence, timestamp'2024-10-04' AS window_start,
               timestamp'2024-10-04 00:01' AS window_end, date'2024-10-04' AS day, n, n AS t__count, 1.0D AS t__sum
        FROM VALUES ('g1', 1L, {2**63 - 1}L), ('g1', 2L, {2**63 - 1}L), ('g2', 1L, 2L) AS v(gateway, sequence, n)
    """)
    cut = {0: 2**64 - 1, 2**31: 1, 2**40: 1, -1: 1}

    def found(lineage: recompute.Lineage) -> Any:
        (row,) = recompute.merged(rows, lineage, schema).collect()
        return row.n, row.t, row.gateways

    assert found(recompute.Lineage(spark, {("g1", 1): cut, ("g2", 1): None})) == (2**63 - 1, 3 / 2**64, 2)
    assert found(recompute.Lineage(spark, {("g1", 1): {0: -(2**64)}, ("g2", 1): cut})) == (2, 0.5, 1)
