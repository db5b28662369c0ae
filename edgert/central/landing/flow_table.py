"""A landing table, and what its opening rows say."""

from __future__ import annotations

import datetime as dt

from edgert.central.landing import arrow_rows
from edgert.central.landing.checks import unite
from edgert.central.landing.lineage import Opening
from edgert.central.tables.table import Table, TableError, join
from edgert.central.upkeep.table import first_day
from edgert.core.errors import PayloadError
from edgert.core.results.result_schema import Schema


class Spoilt(TableError):
    """A landing table has rows that no collector would have let in."""


class FlowTable:
    """`landing/<name>` and what its opening rows say: the schema of each epoch and of the table."""

    def __init__(self, root: str, name: str) -> None:
        self.table = Table(join(root, "landing", name))
        self.first_s = 0.0
        """Windows that begin earlier are gone by retention (s since the epoch): contributions to them come too late."""
        self._forget()

    def _forget(self) -> None:
        self._loads = self.table.loads
        self._noted: set[tuple[str, int]] = set()
        """(gateway, epoch) that were opened elsewhere."""
        self.opened: dict[tuple[str, int], Schema] = {}
        """(gateway, epoch) -> schema."""
        self.gateways: set[str] = set()
        """Gateways of these epochs."""
        self.greatest: dict[str, int] = {}
        """Gateway -> its greatest epoch, opened here or elsewhere: one that comes later has to be above it to count."""
        self.schema: Schema | None = None
        self.openings: list[Opening] = []
        """Lineage of epochs by opening rows, as of the last `read_opens`."""
        self._read_at: int | None = None
        """Version of the table whose opening rows were read last: of an epoch without an opening each question reads
        them anew otherwise."""

    def refresh(self) -> bool:
        """Look at what others committed. Returns whether the table exists. Raises `TableError`."""
        exists = self.table.refresh()
        self._read_at = None
        if not exists or self.table.loads != self._loads:
            self._forget()  # removed, or put back from an older copy: it lacks openings that were in it
        if exists and self.schema is None:
            self.read_opens()
        self.first_s = first_second(self.table)
        return exists

    def read_opens(self) -> None:
        """Read the opening rows, which stand in a partition of their own (day is null). Raises `TableError`, `Spoilt`
        if one of them says what cannot be."""
        if self._read_at == self.table.at():
            return
        columns = ["gateway", "epoch", "lineage"]
        for row in sorted(self.table.read(columns, "day IS NULL"), key=lambda row: row["epoch"]):
            epoch = (row["gateway"], row["epoch"])
            if row["lineage"] and not self._is_known(epoch, row["lineage"]):
                # The door let only good ones in: this is a table that somebody else wrote to.
                try:
                    schema, parent, cut = arrow_rows.lineage_of(row["lineage"])
                    self.note(Opening(*epoch, parent, cut), schema)
                except (PayloadError, LookupError, TypeError, ValueError, AttributeError) as error:
                    what = f"opening row of {epoch}: expected a lineage"
                    raise Spoilt(f"{self.table.uri}: {what}: {error}", self.table.uri) from error
        self._read_at = self.table.at()

    def _is_known(self, epoch: tuple[str, int], lineage: str) -> bool:
        return epoch in self.opened or (epoch in self._noted and not arrow_rows.has_schema(lineage))

    def schema_of(self, epoch: tuple[str, int]) -> Schema | None:
        """The schema of an epoch (gateway, epoch), also if another collector landed its opening batch."""
        if epoch not in self.opened:
            self.read_opens()
        return self.opened.get(epoch)

    def key_names(self) -> tuple[str, ...]:
        """The keys of its windows, as of the last look (none before its first opening row)."""
        return tuple(name for name, _ in self.schema.keys) if self.schema else ()

    def note(self, opening: Opening, schema: Schema | None) -> None:
        """An epoch was opened; with `schema` None in another table of the flow."""
        epoch = (opening.gateway, opening.epoch)
        self.greatest[opening.gateway] = max(opening.epoch, self.greatest.get(opening.gateway, opening.epoch))
        if schema is None:
            if epoch not in self._noted:
                self._noted.add(epoch)
                self.openings.append(opening)
            return
        self.schema = unite(self.schema, schema)  # first: what does not fit is not noted at all
        if epoch not in self._noted:
            self.openings.append(opening)
        self.opened[epoch] = schema
        self.gateways.add(opening.gateway)


def first_second(table: Table) -> float:
    """Returns when the first day begins that retention left of a table, s since the epoch (0: it took none)."""
    day = first_day(table.uri, table.properties())
    return dt.datetime.combine(day, dt.time(), dt.UTC).timestamp() if day else 0.0
