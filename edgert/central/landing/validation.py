"""Where a result goes: whether its epoch is open, and what of it can be used."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal

from edgert.central.landing import arrow_rows
from edgert.central.landing.arrow_rows import LandingBatch
from edgert.central.landing.checks import CheckedRows, check_rows, unite
from edgert.central.landing.flow_table import FlowTable
from edgert.core.errors import PayloadError, show
from edgert.core.results.result_schema import Schema
from edgert.core.results.results import DropsBatch, GapBatch, Numbered, OpenBatch, RefusedBatch


@dataclass(frozen=True, slots=True)
class Judged:
    """A batch and where it goes."""

    batch: LandingBatch
    destination: Literal["landing", "gaps", "drops", "quarantine"]
    checked: CheckedRows | None = None
    reason: str = ""


def epoch_of(batch: LandingBatch) -> tuple[str, int]:
    """(gateway, epoch) of a batch."""
    return batch.gateway, batch.epoch


@dataclass(slots=True)
class OpenedEpochs:
    """Epochs that a round opens."""

    schema: Schema | None
    """Schema of the table once the batch has landed."""
    epochs: dict[tuple[str, int], Schema] = field(default_factory=dict)


def judge(batch: LandingBatch, at: FlowTable, opening: OpenedEpochs) -> Judged:
    """Where a batch goes."""
    epoch = epoch_of(batch)
    if isinstance(batch, GapBatch):
        return Judged(batch, "gaps")
    if isinstance(batch, DropsBatch):
        return Judged(batch, "drops")
    try:
        if isinstance(batch, RefusedBatch):
            raise PayloadError(batch.reason)
        if isinstance(batch, OpenBatch):
            opening.schema = _checked_open(batch, opening.schema)
            opening.epochs[epoch] = batch.schema
            return Judged(batch, "landing")
        schema = opening.epochs.get(epoch) or at.schema_of(epoch)
        if schema is None:
            raise PayloadError(f"epoch {batch.epoch} was not opened, or its opening batch was refused")
        return Judged(batch, "landing", checked=check_rows(batch, schema, at.first_s))
    except PayloadError as error:
        return Judged(batch, "quarantine", reason=str(error))


def as_refused(batch: LandingBatch, reason: str) -> RefusedBatch:
    """Returns the batch as a refused one, which is kept for people to look at."""
    number = {f.name: getattr(batch, f.name) for f in fields(Numbered)}
    return RefusedBatch(**number, reason=reason, payload=show(batch, arrow_rows.KEPT_BYTES).encode())


def _checked_open(batch: OpenBatch, table: Schema | None) -> Schema:
    """The table's schema with that of an epoch's opening."""
    if (batch.stream, batch.sequence) != (0, 1):
        raise PayloadError(f"open: expected stream 0, sequence 1, got {batch.stream}, {batch.sequence}")
    return unite(table, batch.schema)
