"""The landing tables of a flow: `landing/<flow>`, and `landing/<flow>_v2`, ... of versions with other keys or windows.

Each epoch has its rows in one of them: in the first whose windows and keys are its own. Where it comes from is noted in
all others too (an opening row without a schema): what a gateway has shipped to one table may be void by an epoch in
another, and a version that goes back to former windows goes on with what its gateway had in their table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from edgert.central.landing import arrow_rows
from edgert.central.landing.checks import fits
from edgert.central.landing.flow_table import FlowTable
from edgert.central.landing.lineage import Epoch, Opening
from edgert.central.tables.table import list_folders
from edgert.core.results.result_schema import Schema

_LATER: Final = re.compile(r"_v[1-9][0-9]*$")


def flow_of(table: str) -> str:
    """Returns the flow of a landing table. A flow name never ends in `_vN`."""
    return _LATER.sub("", table)


def of_flow(tables: Iterable[str], flow: str) -> list[str]:
    """Landing tables of a flow; if `flow` is a later table's name, that one."""
    return [table for table in tables if flow in (table, flow_of(table))]


class FlowTables:
    """Landing tables of one flow, `landing/<flow>` first. A table that another collector adds is found when it is
    needed: an epoch that is in no known table is looked for in the folder. Some tables may have been removed: numbers
    need not follow each other."""

    def __init__(self, root: str, flow: str) -> None:
        self._root, self._flow = root, flow
        self.first = FlowTable(root, flow)
        self._later: dict[int, FlowTable] = {}
        """Later tables by number, 2 and more, in that order."""
        self._listed = False
        """True if the folder was listed since the last refresh."""

    @property
    def _tables(self) -> list[FlowTable]:
        return [self.first, *self._later.values()]

    def refresh(self) -> bool:
        """Calls `FlowTable.refresh` of all known tables. What is seen is on the disk, so that it may be acknowledged.
        Returns whether there is any."""
        self._listed = False
        exists = _look(self.first)
        self._later = {number: table for number, table in self._later.items() if _look(table)}
        return exists or bool(self._later)

    def read_opens(self) -> None:
        """Calls `FlowTable.read_opens` of all tables that there were at the first call since the last refresh."""
        for name in () if self._listed else list_folders(self._root, "landing"):
            if name != self._flow and flow_of(name) == self._flow:
                number = int(name.rpartition("_v")[2])
                if number not in self._later and _look(table := FlowTable(self._root, name)):
                    self._later[number] = table
        self._later = dict(sorted(self._later.items()))
        self._listed = True
        for table in self._tables:
            table.read_opens()

    def greatest(self, gateway: str) -> int | None:
        """The greatest epoch of a gateway that any of them knows; None: there is none."""
        return max([table.greatest[gateway] for table in self._tables if gateway in table.greatest], default=None)

    def count_of(self, gateway: str) -> int:
        """The number of those in which a gateway has opened an epoch."""
        return sum(gateway in table.gateways for table in self._tables)

    def of(self, epoch: Epoch) -> FlowTable:
        """The table of an epoch; the first, if it was opened in none."""
        if (known := self._opened(epoch)) is None:
            self.read_opens()
            known = self._opened(epoch)
        return known or self.first

    def to_open(self, epoch: Epoch, schema: Schema) -> FlowTable:
        """The table of an epoch as of the last `read_opens`, or that in which it is to be opened; it may have to be
        made."""
        fitting = (table for table in self._tables if table.schema is None or fits(table.schema, schema))
        return self._opened(epoch) or next(fitting, None) or self.behind()

    def behind(self) -> FlowTable:
        """The one after those known, which may have to be made."""
        return FlowTable(self._root, f"{self._flow}_v{max(self._later, default=1) + 1}")

    def unknown_to(self, table: FlowTable, new: Sequence[Opening] = ()) -> list[Opening]:
        """Openings of all tables, those of `new` epochs besides, that a table lacks."""
        known = {(o.gateway, o.epoch) for o in table.openings}
        every = [*(o for other in self._tables if other is not table for o in other.openings), *new]
        lacking = {(o.gateway, o.epoch): o for o in every if (o.gateway, o.epoch) not in known}
        return list(lacking.values())

    def note(self, new: Sequence[Opening], at: FlowTable) -> None:
        """Notes openings in all tables but `at`. Raises `CommitConflict` if another did so first, and `TableError`."""
        for table in self._tables:
            if table is not at and table.schema is not None and (lacking := self.unknown_to(table, new)):
                versions = {f"elsewhere/{o.gateway}/{self._flow}/{o.epoch}": 1 for o in lacking}
                table.table.append(arrow_rows.noted_rows(lacking, table.schema), versions)
                table.table.settle()  # a power cut must not leave the epoch without it
                for opening in lacking:
                    table.note(opening, None)

    def _opened(self, epoch: Epoch) -> FlowTable | None:
        return next((table for table in self._tables if epoch in table.opened), None)


def _look(table: FlowTable) -> bool:
    exists = table.refresh()
    table.table.settle()
    return exists
