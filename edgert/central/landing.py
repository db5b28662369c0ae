"""The doors of the central side's tables: results in order become commits, each result in exactly one.

Where a result goes follows from what it says alone: rows and opening batches to `landing/<flow>`, gaps to `gaps`,
what cannot be used to `quarantine`. Whatever table it is, its commit carries (stream, sequence) as Delta's transaction
identifier. The one rule that makes this safe over several tables: **a commit of sequence n to any table comes after
everything below n is committed, in whichever table.** So the greatest number that any of the tables tells is the
truth, after a crash at any point. Results of one stream with different tables therefore go in several rounds.

Single rows that are refused are copied to `quarantine` first, under an identifier of their own; then the rest of
their batch lands and takes its number.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from edgert.central import frames
from edgert.central.checks import CheckedRows, check_rows, unite
from edgert.central.lineage import Opening
from edgert.central.tables import Conflict, Table, TableError, join, list_tables, told
from edgert.central.upkeep_table import FIRST_DAY
from edgert.core.errors import PayloadError
from edgert.core.result_schema import Schema
from edgert.core.results import GapBatch, OpenBatch, RefusedBatch, RowsBatch

Batch = OpenBatch | RowsBatch | GapBatch | RefusedBatch
Key = tuple[str, str, int, int]
log = logging.getLogger("edgert.central.landing")
_ATTEMPTS: Final = 20
LOOK_S: Final = 60.0
"""How often at most all landing tables are looked at for the sake of gateways that are new to this process."""


@dataclass(slots=True)
class Report:
    """What a call of `land` did."""

    versions: dict[Key, int] = field(default_factory=dict)
    """For every stream that was given: all of it up to this sequence is in the tables."""
    rows: int = 0
    refused_rows: int = 0
    refused_batches: int = 0
    gaps: int = 0
    commits: int = 0
    reasons: list[str] = field(default_factory=list)
    """Why something went to quarantine, a few of them."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """A batch and where it goes."""

    batch: Batch
    destination: Literal["landing", "gaps", "quarantine"]
    checked: CheckedRows | None = None
    reason: str = ""


def key_of(batch: Batch) -> Key:
    """The stream of a batch."""
    return batch.gateway, batch.flow, batch.epoch, batch.stream


def application(key: Key) -> str:
    """The name of a stream in Delta's transaction identifiers."""
    return "/".join(map(str, key))


class Spoilt(TableError):
    """A landing table has rows that no collector would have let in."""


class FlowTable:
    """`landing/<flow>` and what its opening rows say: the schema of each epoch and of the table."""

    def __init__(self, root: str, flow: str) -> None:
        self.table = Table(join(root, "landing", flow))
        self.opened: dict[tuple[str, int], Schema] = {}
        """(gateway, epoch) -> schema."""
        self.greatest: dict[str, int] = {}
        """Gateway -> its greatest epoch."""
        self.schema: Schema | None = None
        self.openings: list[Opening] = []
        """What opening rows say of where epochs come from, as of the last `read_opens`."""
        self.first_s = 0.0
        """Windows that begin earlier are gone by retention (s since the epoch): contributions to them come too late."""

    def refresh(self) -> bool:
        """Look at what others committed. Returns whether the table exists. Raises `TableError`."""
        exists = self.table.refresh()
        if exists and self.schema is None:
            self.read_opens()
        self.first_s = first_second(self.table)
        return exists

    def read_opens(self) -> None:
        """Read the opening rows, which stand in a partition of their own (day is null). Raises `TableError`, `Spoilt`
        if one of them says what cannot be."""
        columns = ["gateway", "epoch", "lineage"]
        for row in sorted(self.table.read(columns, "day IS NULL"), key=lambda row: row["epoch"]):
            epoch = (row["gateway"], row["epoch"])
            if row["lineage"] and epoch not in self.opened:
                # The door let only good ones in: this is a table that somebody else wrote to.
                try:
                    schema, parent, cut = frames.lineage_of(row["lineage"])
                    self.note(Opening(*epoch, parent, cut), schema)
                except (PayloadError, LookupError, TypeError, ValueError, AttributeError) as error:
                    raise Spoilt(f"{self.table.uri}: opening row of {epoch}: expected a lineage: {error}") from error

    def schema_of(self, epoch: tuple[str, int]) -> Schema | None:
        """The schema of an epoch (gateway, epoch), also if another collector landed its opening batch."""
        if epoch not in self.opened:
            self.read_opens()
        return self.opened.get(epoch)

    def note(self, opening: Opening, schema: Schema) -> None:
        """An epoch was opened."""
        self.schema = unite(self.schema, schema)  # first: what does not fit is not noted at all
        self.openings.append(opening)
        self.opened[(opening.gateway, opening.epoch)] = schema
        self.greatest[opening.gateway] = max(opening.epoch, self.greatest.get(opening.gateway, opening.epoch))


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
    ) -> None:
        self.root = root
        self._guard = guard
        self._wall = wall
        self._monotonic = monotonic
        self._looked_at = float("-inf")
        self._flows: dict[str, FlowTable] = {}
        """Those whose table exists: names alone, which anybody can send, are not kept."""
        self._quarantine = Table(join(root, "quarantine"))
        self._gaps = Table(join(root, "gaps"))

    def version(self, key: Key) -> int:
        """The last sequence of a stream that is in the tables (0: none)."""
        return self._version(key, self._refresh(key[1]))

    def look_anew(self) -> None:
        """Others may have landed results of gateways that are ours now: the next `known` looks at all tables."""
        self._looked_at = float("-inf")

    def known(self, gateway: str, flow: str = "") -> dict[Key, int]:
        """For each flow of a gateway: the streams of its greatest epoch, with their last sequence in the tables.

        `flow` is looked at now. What another collector opened in other flows may be up to `LOOK_S` old.
        """
        if self._monotonic() - self._looked_at >= LOOK_S:
            for name in list_tables(self.root, "landing"):
                try:
                    self._refresh(name).read_opens()
                except Spoilt as error:
                    if name == flow:
                        raise
                    log.error("%s; other flows go on", error)
            self._looked_at = self._monotonic()
        elif flow:
            self._refresh(flow).read_opens()
        known: dict[Key, int] = {}
        for name in [name for name, at in self._flows.items() if gateway in at.greatest]:
            known |= self._streams(gateway, name)
        return known

    def of_flow(self, gateway: str, flow: str, epochs: Iterable[int] = ()) -> dict[Key, int]:
        """As `known`, for one flow, and for these `epochs` of it besides."""
        at = self._refresh(flow)
        at.read_opens()
        if gateway not in at.greatest:
            return {}
        known = self._streams(gateway, flow)
        for epoch in epochs:
            known |= self._streams_of(gateway, flow, epoch, at)
        return known

    def _streams(self, gateway: str, flow: str) -> dict[Key, int]:
        at = self._refresh(flow)
        return self._streams_of(gateway, flow, at.greatest[gateway], at)

    def _streams_of(self, gateway: str, flow: str, epoch: int, at: FlowTable) -> dict[Key, int]:
        known: dict[Key, int] = {}
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

    def land(self, batches: Sequence[Batch]) -> Report:
        """Commit batches, each stream's in order. What the tables hold already is left out; after a gap all is.

        Raises `TableError` when a table cannot be written: what was committed stays, the rest may be given again.
        """
        report = Report()
        for flow in dict.fromkeys(b.flow for b in batches):
            pending = [b for b in batches if b.flow == flow]
            attempts = 0
            while pending:
                at = self._refresh(flow)
                if any(isinstance(batch, OpenBatch) for batch in pending):
                    at.read_opens()  # another collector may have widened the schema; from here on that conflicts
                for key in {key_of(b) for b in pending}:
                    report.versions[key] = self._version(key, at)
                pending = _due(pending, report.versions)
                if not pending:
                    break
                self._guard()
                try:
                    self._round(at, pending, report)
                    attempts = 0
                except Conflict as error:
                    attempts += 1
                    if attempts > _ATTEMPTS:
                        raise
                    log.debug("another writer came first, deciding again: %s", error)
        return report

    def quarantine_payloads(self, payloads: Sequence[tuple[str, bytes, str]]) -> None:
        """Keep (topic, payload, reason) of messages that have no number, for people to look at."""
        self._quarantine.refresh()
        self._guard()
        self._quarantine.append(frames.payload_rows(payloads, self._wall()), {})

    def _refresh(self, flow: str) -> FlowTable:
        # The landing table last: whoever sees a number as taken, in whichever table, sees what opened its epoch.
        self._quarantine.refresh()
        self._gaps.refresh()
        at = self._flows.get(flow) or FlowTable(self.root, flow)
        if at.refresh():
            self._flows[flow] = at
        return at

    def _version(self, key: Key, at: FlowTable) -> int:
        name = application(key)
        return max(t.version(name) for t in (at.table, self._quarantine, self._gaps))

    def _round(self, at: FlowTable, pending: Sequence[Batch], report: Report) -> None:
        """Commit, for each stream, its next batches with one destination."""
        judged = self._plan(at, pending)
        landing = [j for j in judged if j.destination == "landing"]
        gaps = [j.batch for j in judged if isinstance(j.batch, GapBatch)]
        refused = [j for j in judged if j.destination == "quarantine"]
        if landing:
            self._commit_landing(at, landing, report)
        if gaps:
            self._gaps.append(frames.gap_rows(gaps, self._wall()), _versions(gaps))
            report.gaps += len(gaps)
        if refused:
            rows = [(j.batch, None, j.reason) for j in refused]
            self._quarantine.append(frames.refused_rows(rows, self._wall()), _versions(j.batch for j in refused))
            report.refused_batches += len(refused)
            report.reasons += [j.reason for j in refused[:3]]
        report.commits += bool(landing) + bool(gaps) + bool(refused)

    def _plan(self, at: FlowTable, pending: Iterable[Batch]) -> list[_Judged]:
        judged: list[_Judged] = []
        opening: dict[tuple[str, int], Schema] = {}
        first: dict[Key, str] = {}
        closed: set[Key] = set()
        for batch in pending:
            key = key_of(batch)
            if key in closed:
                continue
            verdict = _judge(batch, at, opening)
            if first.setdefault(key, verdict.destination) == verdict.destination:
                judged.append(verdict)
            else:
                closed.add(key)
        return judged

    def _commit_landing(self, at: FlowTable, judged: Sequence[_Judged], report: Report) -> None:
        refused = [(j.batch, row, reason) for j in judged if j.checked for row, reason in j.checked.refused]
        # Their own identifier: these batches' numbers are taken only when the good rows land.
        new = [r for r in refused if r[0].sequence > self._quarantine.version(f"rows/{application(key_of(r[0]))}")]
        if new:
            versions = {f"rows/{name}": n for name, n in _versions(b for b, _, _ in new).items()}
            self._quarantine.append(frames.refused_rows(new, self._wall()), versions)
            report.reasons += [reason for _, _, reason in new[:3]]
            report.commits += 1
        opened = [j.batch for j in judged if isinstance(j.batch, OpenBatch)]
        schema = at.schema
        for batch in opened:
            schema = unite(schema, batch.schema)
        assert schema is not None, "rows are judged by the schema of an opened epoch"
        at.table.append(
            frames.landing_rows([(j.batch, j.checked) for j in judged], schema), _versions(j.batch for j in judged)
        )
        for batch in opened:
            at.note(Opening(batch.gateway, batch.epoch, batch.parent, batch.cut), batch.schema)
        report.rows += sum(j.checked.count for j in judged if j.checked)
        report.refused_rows += len(refused)


def _judge(batch: Batch, at: FlowTable, opening: dict[tuple[str, int], Schema]) -> _Judged:
    """Where a batch goes. `opening` gathers the epochs that this round opens."""
    epoch = (batch.gateway, batch.epoch)
    if isinstance(batch, GapBatch):
        return _Judged(batch, "gaps")
    try:
        if isinstance(batch, RefusedBatch):
            raise PayloadError(batch.reason)
        if isinstance(batch, OpenBatch):
            _check_open(batch, at.schema, opening)
            opening[epoch] = batch.schema
            return _Judged(batch, "landing")
        schema = opening.get(epoch) or at.schema_of(epoch)
        if schema is None:
            raise PayloadError(f"epoch {batch.epoch} was not opened, or its opening batch was refused")
        return _Judged(batch, "landing", checked=check_rows(batch, schema, at.first_s))
    except PayloadError as error:
        return _Judged(batch, "quarantine", reason=str(error))


def _check_open(batch: OpenBatch, table: Schema | None, opening: Mapping[tuple[str, int], Schema]) -> None:
    if (batch.stream, batch.sequence) != (0, 1):
        raise PayloadError(f"open: expected stream 0, sequence 1, got {batch.stream}, {batch.sequence}")
    for schema in opening.values():
        table = unite(table, schema)
    unite(table, batch.schema)


def _due(pending: Iterable[Batch], versions: Mapping[Key, int]) -> list[Batch]:
    """Those that come next: neither what is in the tables, nor what comes after a missing one."""
    due: list[Batch] = []
    reached = dict(versions)
    for batch in pending:
        key = key_of(batch)
        if batch.first <= reached[key] + 1 <= batch.sequence:
            reached[key] = batch.sequence
            due.append(batch)
    return due


def first_second(table: Table) -> float:
    """When the first day begins that retention left of a table, s since the epoch (0: it took none)."""
    day = table.properties().get(FIRST_DAY)
    with told(table.uri, f"property {FIRST_DAY}: expected a day such as 2026-01-31, got {day!r}"):
        return dt.datetime.fromisoformat(day).replace(tzinfo=dt.UTC).timestamp() if day else 0.0


def _versions(batches: Iterable[Batch]) -> dict[str, int]:
    """Transaction identifiers of a commit: the greatest sequence of each stream in it."""
    versions: dict[str, int] = {}
    for b in batches:
        versions[b.application] = max(b.sequence, versions.get(b.application, 0))
    return versions
