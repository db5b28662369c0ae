"""Gateways that ship, the landing table, the fleet job, and beside them what the fleet table should say."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from edgert.central.fleet.job import FleetJob
from edgert.central.landing.landing import Landing
from edgert.central.tables.lease import TableLease
from edgert.central.tables.query import query
from edgert.core.settings.central import FleetJob as Settings
from tests.central.results_examples import FLOW, START, Gateway, contribution

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Truth = dict[tuple[int, str | None], tuple[list[float], set[str]]]


class World:
    """Two gateways, the landing table, the fleet job, and beside them what the fleet table should say."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.landing = Landing(str(root))
        self.truth: Truth = {}

    def ship(self, gateway: Gateway, window: int, source: str | None, *values: float, counts: bool = True) -> None:
        self.landing.land([gateway.rows(contribution(window, source, *values))])
        if counts:
            known, gateways = self.truth.setdefault((window, source), ([], set()))
            known.extend(values)
            gateways.add(gateway.name)

    def run(self) -> None:
        # A busy machine may take longer than a lease lasts.
        FleetJob(self.spark, str(self.root), Settings(), TableLease(str(self.root), "fleet", "test", 600.0)).run_once()

    def fleet(self, flow: str = FLOW) -> list[dict[str, Any]]:
        table = query(DeltaTable(str(self.root / "fleet" / flow)))
        return sorted(table, key=lambda r: (r["window_start"], r.get("source") or ""))

    def writes(self) -> list[str]:
        """What was done to the fleet table, oldest first, but for what is done once."""
        done = [str(entry["operation"]) for entry in DeltaTable(str(self.root / "fleet" / FLOW)).history()]
        return [name for name in reversed(done) if name in ("WRITE", "MERGE", "OPTIMIZE")]

    def check(self) -> None:
        """The fleet table is what plain Python makes of the values: all but sums exactly, those to 1e-9."""
        rows = {(round((r["window_start"].timestamp() - START) / 60), r["source"]): r for r in self.fleet()}
        assert rows.keys() == self.truth.keys()
        assert len(rows) == len(self.fleet())
        for key, (values, gateways) in self.truth.items():
            row = rows[key]
            assert (row["n"], row["lo"], row["hi"], row["gateways"]) == (
                len(values), min(values), max(values), len(gateways)
            )  # fmt: skip
            assert math.isclose(row["total"], math.fsum(values), rel_tol=1e-9)
            assert math.isclose(row["t"], statistics.fmean(values), rel_tol=1e-9)
            if len(values) > 1:
                assert math.isclose(row["v"], statistics.variance(values), rel_tol=1e-6, abs_tol=1e-12)
            else:
                assert row["v"] is None
            assert row["day"] == row["window_start"].date()
