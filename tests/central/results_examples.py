"""Results as a gateway would make them, for the tests of the central side."""

from __future__ import annotations

from typing import Any

from edgert.core.results.result_schema import Schema, row_columns
from edgert.core.results.results import DropsBatch, GapBatch, OpenBatch, RowsBatch

FLOW = "air"
SCHEMA = Schema(
    60.0,
    (("source", "string"),),
    (("n", "count"), ("t", "mean"), ("v", "variance"), ("lo", "min"), ("hi", "max"), ("total", "sum")),
)
DAY_S = 86_400.0
START = 20_000 * DAY_S


class Gateway:
    """Numbers its batches as an outbox does."""

    def __init__(self, name: str, epoch: int = 1 << 32, schema: Schema = SCHEMA, flow: str = FLOW) -> None:
        self.name = name
        self.epoch = epoch
        self.schema = schema
        self.flow = flow
        self.sequences: dict[int, int] = {}

    def number(self, stream: int) -> dict[str, Any]:
        self.sequences[stream] = self.sequences.get(stream, 0) + 1
        return {
            "gateway": self.name,
            "flow": self.flow,
            "epoch": self.epoch,
            "stream": stream,
            "sequence": self.sequences[stream],
            "flow_version": 1,
        }

    def open(self, parent: int | None = None, cut: dict[int, int] | None = None) -> OpenBatch:
        return OpenBatch(**self.number(0), schema=self.schema, parent=parent, cut=cut or {})

    def rows(self, *rows: Any, stream: int = 0, columns: tuple[str, ...] | None = None) -> RowsBatch:
        return RowsBatch(**self.number(stream), columns=columns or row_columns(self.schema), rows=list(rows))

    def gap(self, reason: str = "quota", rows: int | None = 3) -> GapBatch:
        return GapBatch(**self.number(0), reason=reason, rows=rows)

    def drops(self, *drops: tuple[str, str, int]) -> DropsBatch:
        return DropsBatch(**self.number(0), drops=drops or (("in", "bad_payload", 2), ("minute", "late", 1)))


def contribution(window: int, source: str | None, *values: float) -> list[Any]:
    """A row of `SCHEMA`: what `values` add to a window (window 0 begins at `START`)."""
    n = len(values)
    mean = sum(values) / n
    m2 = sum((v - mean) ** 2 for v in values)
    bounds = [START + window * 60, START + window * 60 + 60]
    return [*bounds, source, n, n, sum(values), n, mean, m2, min(values), max(values), sum(values)]
