"""The alert job with real Spark, on real landing tables: what is raised, cleared, and never repeated."""

from __future__ import annotations

import datetime as dt
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import functions as F  # noqa: N812

from edgert.central.alerts.job import AlertJob
from edgert.central.alerts.rules import parse
from edgert.central.alerts.streams import QuantileBounds
from edgert.central.alerts.table import CLEARED, RAISED, TABLE
from edgert.central.landing.arrow_rows import LandingBatch
from edgert.central.landing.landing import Landing
from edgert.central.spark.stream_reader import position
from edgert.central.spark.streams import FAILURE, NEW_COLUMNS
from edgert.central.tables.lease import TableLease
from edgert.central.tables.readers import Readers
from edgert.central.tables.table import Table
from edgert.core.results.result_schema import Schema
from edgert.core.results.results import RowsBatch
from edgert.core.settings.central import Alerts as Settings
from tests.central.results_examples import FLOW, SCHEMA, START, Gateway, contribution
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("google.protobuf", reason="protobuf is not installed (pip install 'protobuf>=6.33.5,<7')")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.xdist_group("spark")]
WIDER = Schema(60.0, SCHEMA.keys, (*SCHEMA.aggregates, ("top", "max")))
HALF = Schema(30.0, SCHEMA.keys, SCHEMA.aggregates)
AFTER_S = 1.2
PATIENCE_S = 300.0
"""Beside other tests a stream may need several starts: Spark gives a Python worker 10 s for it."""
WELL = {"a": 20.0, "b": 21.0, "d": 22.0, "e": 20.0}
QUIET = """
[rules.quiet]
flow = "air"
kind = "silent"
keys = ["source"]
after_s = 1
"""
LOST = QUIET.replace("quiet", "lost").replace("source", "gateway")
ODD = """
[rules.odd]
flow = "air"
kind = "outside-quantile"
column = "t"
low = 0.05
high = 0.95
margin = 0.5
windows = 2
least = 20
"""


class World:
    """Gateways and their landing table; windows are numbered from half an hour ago."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = str(root)
        self.landing = Landing(self.root)
        self.first = round((time.time() - START) // 60) - 30

    def end(self, window: int) -> dt.datetime:
        return dt.datetime.fromtimestamp(START + (self.first + window + 1) * 60, dt.UTC)

    def rows(self, gateway: Gateway, windows: Iterable[int], **values: float) -> RowsBatch:
        """Of each source a value."""
        more = [5.0] if gateway.schema == WIDER else []
        return gateway.rows(
            *([*contribution(self.first + w, source, v), *more] for w in windows for source, v in values.items())
        )

    def land(self, *batches: LandingBatch) -> None:
        """In one commit, so that no stream sees a part."""
        assert self.landing.land(batches).commits == 1

    def write_fleet(self, values: list[float]) -> None:
        """What the fleet job makes of windows, as far as a rule looks at it."""
        now = dt.datetime.now(dt.UTC)
        rows = [{"window_start": now, "t": value, "day": now.date()} for value in values]
        write_deltalake(f"{self.root}/fleet/{FLOW}", pa.Table.from_pylist(rows), partition_by=["day"])

    def alerts(self) -> list[dict[str, Any]]:
        table = Table(f"{self.root}/{TABLE}")
        table.refresh()
        return sorted(table.read(["id", "rule", "key", "state", "since", "cleared", "value"], "true"), key=str)

    def said(self) -> set[tuple[str, str, str]]:
        return {(a["rule"], a["key"], a["state"]) for a in self.alerts()}

    @contextmanager
    def running(self, rules: str) -> Iterator[AlertJob]:
        lease = TableLease(self.root, "alerts", "test", 600.0)
        job = AlertJob(self.spark, self.root, parse(rules), Settings(trigger_s=1.0), None, lease)
        job.tell_s = 1.0
        job.start()
        try:
            yield job
        finally:
            job.close(120)
            assert not job._thread.is_alive()

    def caught_up(self, job: AlertJob, *rules: str, of: str = FLOW) -> None:
        """Waits until the batches of these rules have done all that has landed in a table."""
        table = Table(f"{self.root}/landing/{of}")
        table.refresh()

        def done(rule: str) -> bool:
            query = job.streams.running().get(f"alert:{rule}" + ("" if of == FLOW else f"/{of}"))
            progress = query.lastProgress if query is not None else None
            return progress is not None and position(progress.sources[0].endOffset).rows >= table.at()

        wait_until(lambda: all(map(done, rules)), "streams that have read all", PATIENCE_S, poll_s=0.1)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return World(spark, tmp_path)


def key(**columns: str) -> str:
    return "{" + ",".join(f'"{n}":"{v}"' for n, v in columns.items()) + "}"


def test_alerts_are_raised_and_cleared_once_whatever_happens_to_the_streams(world: World) -> None:
    g1, g2 = Gateway("g1"), Gateway("g2")
    world.land(g1.open(), g2.open())
    world.land(world.rows(g1, range(4), **WELL), world.rows(g2, range(4), c=20.0, f=21.0))
    world.write_fleet([20.0, 21.0, 22.0] * 10)

    with world.running(QUIET + ODD) as job:
        world.caught_up(job, "quiet", "odd")
        # b says nothing more, and d what nobody else says; g2 is away with its sensors.
        for window in (4, 5):
            time.sleep(AFTER_S)
            world.land(world.rows(g1, [window], a=20.0, d=500.0, e=21.0))
        raised = {("quiet", key(source="b"), RAISED), ("odd", key(source="d"), RAISED)}
        wait_until(lambda: world.said() >= raised, "two alerts", PATIENCE_S, poll_s=0.1)
        assert world.said() == raised, "the sensors of a gateway that is away are not silent"
        assert {a["since"] for a in world.alerts()} == {world.end(3)}

        # A new version of the flow has one column more; b is back, and d well; g2 comes back with a backlog.
        new = Gateway("g1", epoch=2 << 32, schema=WIDER)
        world.land(new.open(g1.epoch, {0: g1.sequences[0]}), world.rows(new, [6], **WELL),
                   world.rows(g2, (4, 5, 6), c=20.0, f=21.0))  # fmt: skip
        cleared = {(rule, k, CLEARED) for rule, k, _ in raised}
        wait_until(lambda: world.said() == cleared, "two alerts cleared", PATIENCE_S, poll_s=0.1)
        assert {a["cleared"] for a in world.alerts()} == {world.end(6)}
        restarts = job.streams.restarts  # one that fails meanwhile knows the new columns at its next start
        assert all(
            restarts[f"alert:{r}", NEW_COLUMNS] == 1 or restarts[f"alert:{r}", FAILURE] for r in ("quiet", "odd")
        )
        assert job.counts == {(rule, s): 1 for rule in ("quiet", "odd") for s in (RAISED, CLEARED)}

        # c has gone to the other gateway, where it is heard.
        for window in (7, 8):
            time.sleep(AFTER_S)
            world.land(world.rows(new, [window], **WELL, c=20.0), world.rows(g2, [window], f=21.0))
        world.caught_up(job, "quiet")
        before = world.alerts()
        assert {(a["rule"], a["key"], a["state"]) for a in before} == cleared

    # Streams that have lost their place read all of it again.
    shutil.rmtree(f"{world.root}/_spark/alerts")
    Readers(world.root).remove("alert:odd")
    with world.running(QUIET + ODD) as job:
        world.caught_up(job, "quiet", "odd")
        time.sleep(AFTER_S)
        world.land(world.rows(new, [9], **WELL, c=20.0), world.rows(g2, [9], f=21.0))
        world.caught_up(job, "quiet", "odd")
        assert job.counts == {}
    assert world.alerts() == before


def test_a_gateway_that_is_away_is_told_and_a_rule_that_fits_no_column_stops_no_other(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    g1, g2 = Gateway("g1"), Gateway("g2")
    world.land(g1.open(), g2.open())
    world.land(world.rows(g1, [0], a=1.0), world.rows(g2, [0], b=1.0))
    Readers(world.root).begin("alert:of-old", f"landing/{FLOW}")
    wrong = ODD.replace('"t"', '"v"') + QUIET.replace('"source"', '"room"')
    with world.running(LOST + wrong) as job:
        world.caught_up(job, "lost")
        for text in (
            "rule odd: expected as column one of landing/air that is a count, sum, min, max, mean",
            "rule quiet: expected keys of landing/air (source, gateway), got room",
        ):
            wait_until(lambda text=text: text in caplog.text, text, PATIENCE_S, poll_s=0.1)  # type: ignore[misc]
        assert {name for name, why in job.streams.restarts if why == FAILURE} >= {"alert:odd", "alert:quiet"}
        wait_until(lambda: list(job.streams.running()) == ["alert:lost"], "its stream alone", PATIENCE_S, poll_s=0.1)
        time.sleep(AFTER_S)
        world.land(world.rows(g1, [1, 2], a=1.0))
        lost = ("lost", key(gateway="g2"))
        wait_until(lambda: world.said() == {(*lost, RAISED)}, "an alert", PATIENCE_S, poll_s=0.1)
        world.land(world.rows(g1, [3], a=1.0), world.rows(g2, [1, 2, 3], b=1.0))
        wait_until(lambda: world.said() == {(*lost, CLEARED)}, "no alert", PATIENCE_S, poll_s=0.1)
    assert {r.reader for r in Readers(world.root).all()} == {"alert:lost"}


@pytest.mark.long
def test_alerts_follow_a_flow_to_a_later_table(world: World) -> None:
    g1, g2 = Gateway("g1"), Gateway("g2")
    moved = Gateway("g1", 2 << 32, HALF)
    later = f"{FLOW}_v2"

    def halves(window: int, **values: float) -> RowsBatch:
        """The second half of each minute."""
        rows = [contribution(world.first + window, source, value) for source, value in values.items()]
        return moved.rows(*([row[0] + 30, *row[1:]] for row in rows))

    world.land(g1.open(), g2.open())
    world.land(world.rows(g1, [0, 1], a=20.0, b=20.0), world.rows(g2, [0, 1], c=20.0))
    with world.running(QUIET + LOST) as job:
        world.caught_up(job, "quiet", "lost")
        world.land(moved.open(g1.epoch, {0: g1.sequences[0]}))
        world.land(halves(2, a=20.0, b=20.0))
        world.caught_up(job, "quiet", "lost", of=later)
        time.sleep(AFTER_S)
        world.land(halves(3, a=20.0))  # b says nothing more; of g1 nothing comes to the former table
        world.land(world.rows(g2, [2, 3], c=20.0))
        raised = ("quiet", key(source="b"))
        wait_until(lambda: world.said() == {(*raised, RAISED)}, "an alert", PATIENCE_S, poll_s=0.1)
        for of in (FLOW, later):
            world.caught_up(job, "quiet", "lost", of=of)
        assert world.said() == {(*raised, RAISED)}
        world.land(halves(4, a=20.0, b=20.0))
        wait_until(lambda: world.said() == {(*raised, CLEARED)}, "no alert", PATIENCE_S, poll_s=0.1)
        assert job.counts == {("quiet", RAISED): 1, ("quiet", CLEARED): 1}
        wait_until(
            lambda: {(r.reader, r.table) for r in Readers(world.root).all() if r.reach.rows}
            == {(f"alert:{rule}", f"landing/{table}") for rule in ("quiet", "lost") for table in (FLOW, later)},
            "readers of both tables", PATIENCE_S, poll_s=0.1,
        )  # fmt: skip


def test_bounds_are_of_single_readings_where_there_are_sketches_else_of_the_values_of_windows(world: World) -> None:
    readings = world.spark.range(2000).selectExpr("CAST(id AS DOUBLE) AS v", "id % 40 AS source")
    windows = readings.groupBy("source").agg(
        F.kll_sketch_agg_double("v").alias("q__kll"), F.avg("v").alias("t"), F.now().alias("window_start")
    )
    windows.withColumn("day", F.to_date("window_start")).write.format("delta").save(f"{world.root}/fleet/{FLOW}")

    def bounds(text: str, table: str = FLOW) -> Any:
        (rule,) = parse(text)
        return QuantileBounds(rule, world.root, table).of_now(world.spark)

    plain = ODD.replace("margin = 0.5", "margin = 0.0")
    # Windows' means go from 980 to 1019, and readings from 0 to 1999, ranks of which a sketch tells to 1.3 %.
    assert bounds(plain) == (pytest.approx(981, abs=1.5), pytest.approx(1018, abs=1.5))
    assert bounds(plain + 'of = "q"') == (pytest.approx(100, abs=40), pytest.approx(1900, abs=40))
    assert bounds(plain.replace("least = 20", "least = 41")) is None
    assert bounds(plain.replace("least = 20", 'least = 1500\nof = "q"').replace("low = 0.05", "")) == (
        None, pytest.approx(1900, abs=40)
    )  # fmt: skip
    assert bounds(plain, f"{FLOW}_v2") is None
