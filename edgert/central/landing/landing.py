"""The doors of the central side's tables: results in order become commits, the rows of each result in exactly one.

Where a result goes follows from what it says alone: rows and opening batches to the landing table of their epoch
(`flow_tables`), gaps to `gaps`, what a flow has dropped to `drops`, what cannot be used to `quarantine`. Whatever
table it is, its commit carries (stream, sequence) as Delta's transaction identifier. The one rule that makes this safe
over several tables: **a commit of sequence n to any table comes after everything below n is committed, in whichever
table.** Results of one stream with different tables therefore go in several rounds. Of an epoch that is opened, the
landing table tells the truth, after a crash at any point: it takes the numbers of all that goes elsewhere as well,
after its rows stand in their tables, on the disk (there under `beside/`). So what is lost with a landing table, or
with an older copy of it that is put back, is missed, whatever the others say. Of an epoch that was never opened the
others alone tell.

Single rows that are refused are copied to `quarantine` first, under an identifier of their own; then the rest of
their batch lands and takes its number.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from edgert.central.landing import arrow_rows
from edgert.central.landing.acceptance import MOST_STREAMS, SourceKey
from edgert.central.landing.arrow_rows import LandingBatch
from edgert.central.landing.checks import unite
from edgert.central.landing.flow_table import FlowTable
from edgert.central.landing.flow_tables import FlowTables, flow_of
from edgert.central.landing.hourly_budget import HourlyBudget
from edgert.central.landing.lineage import Epoch, Opening
from edgert.central.landing.report import LandingReport
from edgert.central.landing.rounds import (
    BESIDE,
    due,
    key_of,
    plan,
    refuse_tables,
    share_out,
    tables_by_epoch,
    versions_of,
)
from edgert.central.landing.validation import Judged, as_refused, epoch_of
from edgert.central.tables.query import literal
from edgert.central.tables.table import CommitConflict, Table, TableError, join, list_tables
from edgert.core.errors import EdgertError
from edgert.core.results.results import DropsBatch, GapBatch, OpenBatch, RefusedBatch, day_of
from edgert.core.settings.central import TABLES_PER_FLOW

log = logging.getLogger("edgert.central.landing")
_ATTEMPTS: Final = 20
FIRST_TABLES: Final = 256
"""Flows of which one gateway may make the first landing table in an hour."""
LATER_TABLES: Final = 4
"""Landing tables for other windows or keys (`_v2`, ...) that one gateway may make of one flow in an hour: every table
of a flow is read whenever something of the flow lands, and written whenever an epoch of the flow is opened."""
LOOK_S: Final = 60.0
"""How often at most all landing tables are looked at for the sake of gateways that are new to this process."""


def application(key: SourceKey) -> str:
    """The name of a stream in Delta's transaction identifiers."""
    return "/".join(map(str, key))


class Landing:
    """Appends results to the tables under one root. Not for more than one thread; several processes may race.

    `guard` is called before each commit, after the look at the table: what it raises comes out, and nothing is written.
    """

    def __init__(
        self,
        root: str,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        guard: Callable[[], None] = lambda: None,
        most_tables: int = TABLES_PER_FLOW,
    ) -> None:
        """`most_tables`: of one flow, in which one gateway may open epochs."""
        self.root, self._most_tables = root, most_tables
        self._guard = guard
        self._wall = wall
        self._monotonic = monotonic
        self._looked_at = float("-inf")
        self._first_tables = HourlyBudget(FIRST_TABLES)
        self._later_tables = HourlyBudget(LATER_TABLES, MOST_STREAMS)
        self._flows: dict[str, FlowTables] = {}
        """Flows of which a table exists: names alone, which anybody can send, are not kept."""
        self._quarantine = Table(join(root, "quarantine"))
        self._gaps = Table(join(root, "gaps"))
        self._drops = Table(join(root, "drops"))
        self._shared = (self._quarantine, self._gaps, self._drops)
        """Tables that all flows share: what has landed of a stream may stand in any of them."""

    def version(self, key: SourceKey) -> int:
        """The last sequence of a stream that is in the tables (0: none)."""
        return self._version(key, self._refresh(key[1]).of((key[0], key[2])))

    def look_anew(self) -> None:
        """Others may have landed results of gateways that are ours now: the next `known` looks at all tables."""
        self._looked_at = float("-inf")

    def known(self, gateway: str, flow: str = "") -> dict[SourceKey, int]:
        """For each flow of a gateway: the streams of its greatest epoch, with their last sequence in the tables. Of an
        epoch that is only noted, since its own table is not there (any more, or yet), stream 0 with sequence 0.

        `flow` is looked at now. What another collector opened in other flows may be up to `LOOK_S` old.
        """
        if self._monotonic() - self._looked_at >= LOOK_S:
            for name in dict.fromkeys(map(flow_of, list_tables(self.root, "landing"))):
                with self._others_go_on(name, flow):
                    self._refresh(name).read_opens()
            self._looked_at = self._monotonic()
        elif flow:
            self._refresh(flow).read_opens()
        known: dict[SourceKey, int] = {}
        for name in [name for name, tables in self._flows.items() if tables.greatest(gateway) is not None]:
            with self._others_go_on(name, flow):
                known |= self._streams(gateway, name)
        return known

    def is_fault_of(self, flow: str, error: TableError) -> bool:
        """True if it is the fault of a flow's own tables, which do not concern other flows."""
        return flow_of(error.uri) == join(self.root, "landing", flow)

    @contextmanager
    def _others_go_on(self, name: str, flow: str) -> Iterator[None]:
        """Where `flow` is asked for, a table of another that cannot be read is told, and no more."""
        try:
            yield
        except TableError as error:
            if name == flow or not self.is_fault_of(name, error):
                raise
            log.error("%s; other flows go on", error)

    def of_flow(self, gateway: str, flow: str, epochs: Iterable[int] = ()) -> dict[SourceKey, int]:
        """Works as `known`, for one flow, and for these `epochs` of it besides."""
        tables = self._refresh(flow)
        tables.read_opens()
        if tables.greatest(gateway) is None:
            return {}
        known = self._streams(gateway, flow)
        for epoch in epochs:
            known |= self._streams_of(gateway, flow, epoch, tables)
        return known

    def _streams(self, gateway: str, flow: str) -> dict[SourceKey, int]:
        tables = self._refresh(flow)
        epoch = tables.greatest(gateway)  # none, if the table is another since its flows were listed
        if epoch is None:
            return {}
        return self._streams_of(gateway, flow, epoch, tables) or {(gateway, flow, epoch, 0): 0}

    def _streams_of(self, gateway: str, flow: str, epoch: int, tables: FlowTables) -> dict[SourceKey, int]:
        at = tables.of((gateway, epoch))
        known: dict[SourceKey, int] = {}
        stream = missed = 0
        # Stream numbers go up by one, and at most two are open: two unknown in a row are the end.
        while missed < 2:
            key = (gateway, flow, epoch, stream)
            version = self._version(key, at)
            missed = 0 if version else missed + 1
            if version:
                known[key] = version
            stream += 1
        return known

    def land(self, batches: Sequence[LandingBatch], enough: Callable[[], bool] = lambda: False) -> LandingReport:
        """Commit batches, each stream's in order. What the tables hold already is left out; after a gap all is. The
        flows take turns of one round each; when the call has had `enough`, it returns with the rest as `left`.

        Raises `TableError` when a table cannot be written that all flows share: what was committed stays, the rest may
        be given again. Where it is a flow's own table, the others land, and the report says which did not.
        """
        report = LandingReport()
        pending: dict[str, Sequence[LandingBatch]] = {}
        for flow in dict.fromkeys(b.flow for b in batches):
            pending[flow] = [b for b in batches if b.flow == flow]
        attempts: dict[str, int] = {}
        while pending:
            for flow in list(pending):
                begun, given = self._monotonic(), pending.pop(flow)
                try:
                    if rest := self._land_round(flow, given, report, attempts):
                        pending[flow] = rest
                except TableError as error:
                    if not self.is_fault_of(flow, error):
                        raise
                    report.failed[flow] = str(error)
                share_out(self._monotonic() - begun, given, report.seconds)
                if enough():
                    begun_with = pending.pop(flow, ())
                    report.left = [batch for rest in pending.values() for batch in rest]
                    report.left += self._still_due(flow, begun_with, report)
                    return report
        return report

    def _land_round(
        self, flow: str, pending: Sequence[LandingBatch], report: LandingReport, attempts: dict[str, int]
    ) -> Sequence[LandingBatch]:
        """One round of a flow; returns what is still to be looked at."""
        tables, by_epoch, pending = self._look(flow, pending, report)
        if not pending:
            return ()
        self._guard()
        if (within := refuse_tables(self._most_tables, tables, by_epoch, pending)) != pending:
            return within
        at = by_epoch[epoch_of(pending[0])]
        if at.schema is None and (waits := self._without_a_table(at, tables, pending, report)):
            return [b for b in pending if epoch_of(b) not in waits]
        try:
            self._round(at, tables, [b for b in pending if by_epoch[epoch_of(b)] is at], report)
            attempts[flow] = 0
        except CommitConflict as error:
            attempts[flow] = attempts.get(flow, 0) + 1
            if attempts[flow] > _ATTEMPTS:
                uri = at.table.uri
                raise TableError(f"{uri}: others write to it all the time: {error}", uri) from error
            log.debug("another writer came first, deciding again: %s", error)
        except (EdgertError, MemoryError):
            raise
        except Exception as error:
            # A fault of ours, over what no check foresaw: it must not stop what comes after it.
            log.exception("a result of flow %s could not be landed", flow)
            if len(pending) > 1:
                for batch in pending:
                    self._land_alone(batch, report, attempts)
            elif isinstance(pending[0], RefusedBatch):
                raise
            else:
                return [as_refused(pending[0], f"could not be landed: {error!r}")]
        return pending

    def _look(
        self, flow: str, pending: Sequence[LandingBatch], report: LandingReport
    ) -> tuple[FlowTables, dict[Epoch, FlowTable], Sequence[LandingBatch]]:
        """The flow's tables as committed, the table of each epoch, and the batches that come next."""
        tables = self._refresh(flow)
        if any(isinstance(batch, OpenBatch) for batch in pending):
            tables.read_opens()  # another collector may have widened a schema; from here on that conflicts
        by_epoch = tables_by_epoch(tables, pending)
        for key in {key_of(b) for b in pending}:
            report.versions[key] = self._version(key, by_epoch[key[0], key[2]])
        return tables, by_epoch, due(pending, report.versions)

    def _still_due(self, flow: str, pending: Sequence[LandingBatch], report: LandingReport) -> Sequence[LandingBatch]:
        """The batches of its flow that a round has left."""
        try:
            return self._look(flow, pending, report)[2] if pending else ()
        except TableError as error:
            if not self.is_fault_of(flow, error):
                raise
            report.failed[flow] = str(error)
            return pending

    def _land_alone(self, batch: LandingBatch, report: LandingReport, attempts: dict[str, int]) -> None:
        rest: Sequence[LandingBatch] = [batch]
        while rest:
            rest = self._land_round(batch.flow, rest, report, attempts)

    def _without_a_table(
        self, at: FlowTable, tables: FlowTables, pending: Sequence[LandingBatch], report: LandingReport
    ) -> set[Epoch]:
        """The epochs whose opening would make the table `at`, which their gateways may not do now."""
        openings = [b for b in pending if isinstance(b, OpenBatch) and (b.stream, b.sequence) == (0, 1)]
        if not openings or any(self._may_make(at is tables.first, b) for b in openings):
            return set()
        report.held_back += len(openings)
        return {epoch_of(b) for b in openings}

    def _may_make(self, first: bool, opening: LandingBatch) -> bool:
        now = self._monotonic()
        if first:
            return self._first_tables.admits(opening.gateway, now)
        return self._later_tables.admits(f"{opening.gateway}/{opening.flow}", now)

    def quarantine_payloads(self, payloads: Sequence[tuple[str, bytes, str]]) -> None:
        """Keep (topic, payload, reason) of messages that have no number, for people to look at."""
        self._quarantine.refresh()
        self._guard()
        self._quarantine.append(arrow_rows.payload_rows(payloads, self._wall()), {})
        self._quarantine.settle()

    def _refresh(self, flow: str) -> FlowTables:
        """Look at what is committed. What is seen is on the disk, so that it may be acknowledged."""
        # The landing table last: whoever sees a number as taken, in whichever table, sees what opened its epoch.
        for table in self._shared:
            table.refresh()
            table.settle()
        tables = self._flows.get(flow) or FlowTables(self.root, flow)
        if tables.refresh():
            self._flows[flow] = tables
        return tables

    def _version(self, key: SourceKey, at: FlowTable) -> int:
        name = application(key)
        return max(t.version(name) for t in (at.table, *self._shared))

    def _round(self, at: FlowTable, tables: FlowTables, pending: Sequence[LandingBatch], report: LandingReport) -> None:
        """Commit, for each stream, its next batches with one destination. `at`: of `tables` that of their epochs."""
        judged = plan(at, pending)
        landing = [j for j in judged if j.destination == "landing"]
        gaps = [j.batch for j in judged if isinstance(j.batch, GapBatch)]
        drops = [j.batch for j in judged if isinstance(j.batch, DropsBatch)]
        refused = [j for j in judged if j.destination == "quarantine"]
        said: list[LandingBatch] = [*gaps, *drops]
        epochs = {epoch_of(b) for b in (*said, *(j.batch for j in refused))}
        opened = {epoch for epoch in epochs if at.schema_of(epoch) is not None}
        if new_gaps := [b for b in gaps if epoch_of(b) not in opened or not self._is_said(self._gaps, b)]:
            self._gaps.append(arrow_rows.gap_rows(new_gaps, self._wall()), versions_of(new_gaps, opened))
            self._gaps.settle()  # a power cut must not leave the number alone
            report.gaps += len(new_gaps)
        if new_drops := [b for b in drops if epoch_of(b) not in opened or not self._is_said(self._drops, b)]:
            self._drops.append(arrow_rows.drop_rows(new_drops, self._wall()), versions_of(new_drops, opened))
            self._drops.settle()
        if new := [j for j in refused if epoch_of(j.batch) not in opened or not self._is_kept(j.batch)]:
            rows = [(j.batch, arrow_rows.WHOLE, j.reason) for j in new]
            numbers = versions_of((j.batch for j in new), opened)
            self._quarantine.append(arrow_rows.refused_rows(rows, self._wall()), numbers)
            self._quarantine.settle()
            report.refused_batches += len(new)
            report.reasons += [j.reason for j in new[:3]]
        beside = [b for b in (*said, *(j.batch for j in refused)) if epoch_of(b) in opened]
        if landing or beside:
            self._commit_landing(at, tables, landing, beside, report)
        report.commits += bool(new_gaps) + bool(new_drops) + bool(new) + bool(landing or beside)

    @staticmethod
    def _is_said(table: Table, batch: GapBatch | DropsBatch) -> bool:
        """True if `table` has the rows of this, but its number was not noted any more. A greater number alone does not
        say so: of what a landing table lost, later ones tell."""
        if table.version(BESIDE + batch.application) < batch.sequence:
            return False
        number = {"epoch": batch.epoch, "stream": batch.stream, "sequence": batch.sequence}
        if isinstance(batch, GapBatch):
            number["first_sequence"] = batch.first
        names = {"gateway": literal(batch.gateway), "flow": literal(batch.flow)}
        where = " AND ".join(f"{name} = {value}" for name, value in (number | names).items())
        return bool(table.read(["sequence"], where))

    def _is_kept(self, batch: LandingBatch) -> bool:
        """True if `quarantine` has the rows of this; what was refused is sent again as it was, or not at all."""
        return self._quarantine.version(BESIDE + batch.application) >= batch.sequence

    def _commit_landing(
        self,
        at: FlowTable,
        tables: FlowTables,
        judged: Sequence[Judged],
        beside: Sequence[LandingBatch],
        report: LandingReport,
    ) -> None:
        refused = [(j.batch, row, reason) for j in judged if j.checked for row, reason in j.checked.refused]
        # Their own identifier: these batches' numbers are taken only when the good rows land.
        streams = {key_of(batch) for batch, _, _ in refused}
        kept = {key: self._quarantine.version(f"rows/{application(key)}") for key in streams}
        new = [r for r in refused if r[0].sequence > kept[key_of(r[0])]]
        if new:
            versions = {f"rows/{name}": n for name, n in versions_of(b for b, _, _ in new).items()}
            self._quarantine.append(arrow_rows.refused_rows(new, self._wall()), versions)
            self._quarantine.settle()
            report.reasons += [reason for _, _, reason in new[:3]]
            report.commits += 1
        opened = [j.batch for j in judged if isinstance(j.batch, OpenBatch)]
        schema = at.schema
        for batch in opened:
            schema = unite(schema, batch.schema)
        assert schema is not None, "rows are judged by the schema of an opened epoch"
        rows = arrow_rows.landing_rows([(j.batch, j.checked) for j in judged], schema)
        openings = [Opening(b.gateway, b.epoch, b.parent, b.cut) for b in opened]
        elsewhere: list[Opening] = []
        if openings:
            elsewhere = tables.unknown_to(at)
            tables.note(openings, at)  # first: who sees the epoch in its own table finds it in the others
            rows = pa.concat_tables([rows, arrow_rows.noted_rows(elsewhere, schema)])
        at.table.append(rows, versions_of([*(j.batch for j in judged), *beside]))
        for opening in elsewhere:
            at.note(opening, None)
        for opening, batch in zip(openings, opened, strict=True):
            at.note(opening, batch.schema)
        report.rows += sum(j.checked.count for j in judged if j.checked)
        tomorrow = day_of(self._wall()) + 1
        report.ahead_rows += sum(day > tomorrow for j in judged if j.checked for day in j.checked.days)
        report.refused_rows += len(refused)
