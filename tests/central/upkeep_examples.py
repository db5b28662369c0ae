"""A root whose tables grow and are kept, for the tests of upkeep."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from deltalake import DeltaTable

from edgert.central.landing.landing import Landing
from edgert.central.tables.query import query
from edgert.central.tables.readers import Reach, Readers
from edgert.central.upkeep.upkeep import Upkeep, Work
from edgert.core.settings.central import Upkeep as Settings
from tests.central.results_examples import FLOW, START, Gateway, contribution

_CENTURY_S = 3.2e9
LANDING = f"landing/{FLOW}"


class Site:
    """One gateway, its landing table, and upkeep of it that keeps nothing for those who are not registered."""

    def __init__(self, root: Path, settings: Settings | None = None, now: float = START + 3600) -> None:
        self.root = root
        self.now = now
        """What upkeep takes for the time."""
        self.gateway = Gateway("g1")
        self.landing = Landing(str(root))
        self.landing.land([self.gateway.open()])
        self.readers = Readers(str(root), self.wall)
        # Files and logs bear the machine's time: all of it is long ago.
        self.upkeep = Upkeep(str(root), settings or Settings(compact_files=2), keep_s=-_CENTURY_S, wall=self.wall)

    def wall(self) -> float:
        return self.now

    def ship(self, count: int, window: int = 0) -> None:
        """So many commits of one row each."""
        for _ in range(count):
            self.landing.land([self.gateway.rows(contribution(window, "a", 1.0))])

    def elsewhere(self, day: int) -> None:
        """A row of another flow, so many days after the first."""
        gateway = Gateway("g9", flow="elsewhere")
        self.landing.land([gateway.open(), gateway.rows(contribution(day * 1440, "a", 1.0))])

    def keep(self, table: str = LANDING) -> Work:
        """A thorough round; what it did to a table."""
        work = {w.table: w for w in self.upkeep.round(thorough=True)}
        assert [w.trouble for w in work.values()] == [""] * len(work)
        return work[table]

    def tell(self, reader: str, version: int) -> None:
        self.readers.tell(reader, {LANDING: Reach(version, version)})

    @property
    def version(self) -> int:
        return DeltaTable(str(self.root / LANDING)).version()

    def sequences(self, version: int | None = None) -> list[int]:
        """Those of the contributions in the landing table, sorted."""
        table = DeltaTable(str(self.root / LANDING), version=version)
        return sorted(r["sequence"] for r in query(table, ["sequence"], "lineage IS NULL"))

    def days(self) -> set[dt.date | None]:
        return {r["day"] for r in query(DeltaTable(str(self.root / LANDING)), ["day"])}

    def data_files(self, table: str = LANDING) -> int:
        return len([p for p in (self.root / table).rglob("*.parquet") if "_delta_log" not in p.parts])

    def log_files(self, table: str = LANDING) -> int:
        return len(list((self.root / table / "_delta_log").iterdir()))
