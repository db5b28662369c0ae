"""The plan of a round of landing: its batches, their tables and their identifiers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from edgert.central.landing.acceptance import SourceKey
from edgert.central.landing.arrow_rows import LandingBatch
from edgert.central.landing.checks import fits
from edgert.central.landing.flow_table import FlowTable
from edgert.central.landing.flow_tables import FlowTables
from edgert.central.landing.lineage import Epoch
from edgert.central.landing.validation import Judged, OpenedEpochs, as_refused, epoch_of, judge
from edgert.core.results.result_schema import Schema
from edgert.core.results.results import MOST_DAYS, OpenBatch

BESIDE: Final = "beside/"


def key_of(batch: LandingBatch) -> SourceKey:
    """The stream of a batch."""
    return batch.gateway, batch.flow, batch.epoch, batch.stream


def share_out(seconds: float, batches: Sequence[LandingBatch], costs: dict[str, float]) -> None:
    """Time that batches took together, by their gateways."""
    for batch in batches:
        costs[batch.gateway] = costs.get(batch.gateway, 0.0) + seconds / len(batches)


def tables_by_epoch(tables: FlowTables, pending: Iterable[LandingBatch]) -> dict[Epoch, FlowTable]:
    """The table of each epoch; of one that is opened, the one that it is opened in."""
    by_epoch: dict[Epoch, FlowTable] = {}
    begun: Schema | None = None
    for batch in pending:
        epoch = epoch_of(batch)
        if isinstance(batch, OpenBatch) and epoch not in by_epoch:
            table = tables.to_open(epoch, batch.schema)
            if table.schema is None:
                begun = begun or batch.schema
                if not fits(begun, batch.schema):
                    table = tables.behind()  # of two that would make the same table the second waits for a round
            by_epoch[epoch] = table
    for batch in pending:
        if epoch_of(batch) not in by_epoch:
            by_epoch[epoch_of(batch)] = tables.of(epoch_of(batch))
    return by_epoch


def refuse_tables(
    most: int, tables: FlowTables, by_epoch: Mapping[Epoch, FlowTable], pending: Sequence[LandingBatch]
) -> Sequence[LandingBatch]:
    """Refuses openings that would make a table for a gateway that has `most` of the flow. Returns all of `pending`."""

    def refused(batch: LandingBatch) -> bool:
        makes = isinstance(batch, OpenBatch) and by_epoch[epoch_of(batch)].schema is None
        return makes and tables.count_of(batch.gateway) >= most

    why = f"open: expected at most {most} tables of a flow by one gateway (collector.tables_per_flow), got one more"
    return [as_refused(batch, why) if refused(batch) else batch for batch in pending]


def due(pending: Iterable[LandingBatch], versions: Mapping[SourceKey, int]) -> list[LandingBatch]:
    """Batches that come next: neither in the tables, nor behind a missing one."""
    due: list[LandingBatch] = []
    reached = dict(versions)
    for batch in pending:
        key = key_of(batch)
        if batch.first <= reached[key] + 1 <= batch.sequence:
            reached[key] = batch.sequence
            due.append(batch)
    return due


def plan(at: FlowTable, pending: Iterable[LandingBatch]) -> list[Judged]:
    """The batches of a round, with windows of at most `MOST_DAYS` days in all: each day makes a file, so this bounds
    the cost of a commit, whatever gateways send. A batch of further days waits for the next round, with all that its
    gateway has behind it."""
    judged: list[Judged] = []
    days: set[int] = set()
    full: set[str] = set()
    opening = OpenedEpochs(at.schema)
    first: dict[SourceKey, str] = {}
    closed: set[SourceKey] = set()
    for batch in pending:
        key = key_of(batch)
        if key in closed or batch.gateway in full:
            continue
        verdict = judge(batch, at, opening)
        of_batch = set(verdict.checked.days) if verdict.checked else set()
        if len(days | of_batch) > MOST_DAYS:
            full.add(batch.gateway)
            continue
        if verdict.destination != "landing" and epoch_of(batch) in opening.epochs:
            closed.add(key)  # it comes after its epoch's opening, which this round lands
            continue
        if first.setdefault(key, verdict.destination) == verdict.destination:
            judged.append(verdict)
            days |= of_batch
        else:
            closed.add(key)
    return judged


def versions_of(batches: Iterable[LandingBatch], beside: Collection[tuple[str, int]] = ()) -> dict[str, int]:
    """Transaction identifiers of a commit: the greatest sequence of each stream in it. Of the epochs `beside` it is
    the landing table that tells."""
    versions: dict[str, int] = {}
    for b in batches:
        name = BESIDE + b.application if epoch_of(b) in beside else b.application
        versions[name] = max(b.sequence, versions.get(name, 0))
    return versions
