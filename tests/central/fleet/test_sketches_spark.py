"""Sketches of several gateways, united by Spark's own functions, are what the library makes of them in Python."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from datasketches import hll_sketch, kll_doubles_sketch
from deltalake import DeltaTable

from edgert.central.fleet.job import FleetJob
from edgert.central.landing.landing import Landing
from edgert.central.tables.lease import TableLease
from edgert.central.tables.query import query
from edgert.core.results.result_schema import QUANTILES, Schema, row_columns
from edgert.core.settings.central import FleetJob as Settings
from edgert.operators.state.sketch_kinds import KINDS
from tests.central.results_examples import START, Gateway
from tests.central.sketch_examples import KIND_OF, damaged, sketch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
KEYS = (("source", "string"),)
SCHEMA = Schema(60.0, KEYS, (("n", "count"), ("u", "distinct"), ("s", "distinct_set"), ("q", "quantiles")))


def row(source: str, values: list[float], window: int = 0) -> list[Any]:
    bounds = [START + window * 60, START + window * 60 + 60]
    return [*bounds, source, len(values), *(sketch(how, values) if values else None for how in KIND_OF)]


def fleet_job(spark: SparkSession, root: Path) -> FleetJob:
    """With a lease that a slow machine's first query does not outlive."""
    return FleetJob(spark, str(root), Settings(), TableLease(str(root), "fleet", "test", duration_s=600.0))


def windows(root: Path) -> dict[str, dict[str, Any]]:
    return {r["source"]: r for r in query(DeltaTable(str(root / "fleet" / "air")))}


def united(how: str, *parts: list[float]) -> dict[str, Any]:
    """What the library makes of the gateways' sketches, by suffix."""
    kind = KINDS[KIND_OF[how]]
    whole = kind.fresh()
    for part in parts:
        whole = kind.merge(whole, kind.unpack(sketch(how, part)))
    return dict(kind.results(whole))


def test_sketches_of_two_gateways_are_united_by_spark_as_by_python(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(3)
    one = [rng.gauss(20, 5) for _ in range(20_000)]
    two = one[:5_000] + [rng.gauss(30, 1) for _ in range(25_000)]
    parts = {"many": (one, two), "one many": (one, [1.5, 2.5]), "few": ([1.0, 2.0, 3.0], [3.0, 4.0])}
    parts["some hundreds"] = one[:500], two[4_900:5_200]
    landing = Landing(str(tmp_path))
    gateways = [Gateway("g1", schema=SCHEMA), Gateway("g2", schema=SCHEMA)]
    landing.land([g.open() for g in gateways])
    for number, g in enumerate(gateways):
        landing.land([g.rows(*(row(name, values[number]) for name, values in parts.items()), row("none", []))])
    job = fleet_job(spark, tmp_path)
    job.run_once()
    told = windows(tmp_path)

    for name, (left, right) in parts.items():
        found = told[name]
        assert found["u"] == united("distinct", left, right)[""], name
        assert found["s"] == united("distinct_set", left, right)[""], name
        assert round(hll_sketch.deserialize(found["u__hll"]).get_estimate()) == found["u"], "others read it, too"
        values = sorted(left + right)
        merged = kll_doubles_sketch.deserialize(found["q__kll"])
        assert merged.n == len(values) == found["n"]
        for suffix, rank in QUANTILES.items():
            at = sum(v <= found[f"q{suffix}"] for v in values) / len(values)
            few = 0.5 / len(values) if len(values) > 10 else 0.5  # a step of the few there are
            assert at == pytest.approx(rank, abs=2 * merged.normalized_rank_error(False) + few), (name, suffix)
    assert told["few"]["u"] == told["few"]["s"] == 4
    assert [told["few"][f"q{suffix}"] for suffix in QUANTILES] == [1.0, 3.0, 4.0]
    assert [told["none"][c] for c in ("n", "u", "u__hll", "s", "s__theta", "q__p50", "q__kll")] == [0] + [None] * 6

    assert [count for _, count in job.rebuild("air")] == [5]
    again = windows(tmp_path)
    for name in parts:
        assert (again[name]["u"], again[name]["s"], again[name]["n"]) == tuple(told[name][c] for c in ("u", "s", "n"))


def test_an_aggregate_that_is_new_is_null_where_it_was_not_yet(spark: SparkSession, tmp_path: Path) -> None:
    old = Gateway("g1", schema=Schema(60.0, KEYS, (("n", "count"),)))
    landing = Landing(str(tmp_path))
    landing.land([old.open(), old.rows([START, START + 60, "before", 3])])
    fleet_job(spark, tmp_path).run_once()
    new = Gateway("g1", epoch=2 << 32, schema=SCHEMA)
    landing.land([new.open(old.epoch, {0: 2}), new.rows(row("after", [1.0, 2.0]), row("before", []))])
    fleet_job(spark, tmp_path).run_once()
    told = windows(tmp_path)
    found = [(told[s]["n"], told[s]["u"], told[s]["q__p50"]) for s in ("before", "after")]
    assert found == [(3, None, None), (2, 2, 1.0)]


def test_spark_reads_and_unites_whatever_the_collector_let_in(spark: SparkSession, tmp_path: Path) -> None:
    """Damaged sketches: each is in quarantine alone, or in a window of its own and in one that all share."""
    landing = Landing(str(tmp_path))
    g = Gateway("g1", schema=SCHEMA)
    landing.land([g.open()])
    rng = random.Random(11)
    rows = []
    for number, how in enumerate(KIND_OF):
        for count, data in enumerate(damaged(how, rng, 1500)):
            for source in (f"{how} {count}", "all"):
                whole = row(source, [])
                whole[4 + number] = data
                rows.append(whole)
    batches = [g.rows(*rows[at : at + 100]) for at in range(0, len(rows), 100)]  # of more, a batch is refused whole
    report = landing.land(batches)
    assert report.rows + report.refused_rows == len(rows)
    assert report.rows > 100
    assert report.refused_rows > 1000
    fleet_job(spark, tmp_path).run_once()
    assert len(windows(tmp_path)) == report.rows // 2 + 1


def test_the_columns_of_a_contribution_are_those_of_the_flow() -> None:
    assert row_columns(SCHEMA)[4:] == ("u__hll", "s__theta", "q__kll")
