"""Results as a gateway numbers them, hostile or honest: of one flow, whose landing table both share."""

from __future__ import annotations

from typing import Any, Final

from edgert.core.results.result_schema import Schema, row_columns
from edgert.core.results.results import OpenBatch, RowsBatch

FLEET: Final = "f"
FLOW: Final = "air"
SCHEMA: Final = Schema(
    60.0,
    (("source", "string"),),
    (("n", "count"), ("t", "mean"), ("v", "variance"), ("lo", "min"), ("hi", "max"), ("total", "sum")),
)
START: Final = 20_000 * 86_400.0
EPOCH: Final = 1 << 32


class Gateway:
    """Numbers its batches as an outbox does, all in one stream."""

    def __init__(self, name: str, epoch: int = EPOCH, schema: Schema = SCHEMA, flow: str = FLOW) -> None:
        self.name, self.epoch, self.schema, self.flow = name, epoch, schema, flow
        self.sequence = 0

    def number(self) -> dict[str, Any]:
        """The head of the next batch."""
        self.sequence += 1
        number = {"gateway": self.name, "flow": self.flow, "epoch": self.epoch, "stream": 0, "flow_version": 1}
        return {**number, "sequence": self.sequence}

    def open(self) -> OpenBatch:
        """The first batch of its epoch."""
        return OpenBatch(**self.number(), schema=self.schema, parent=None, cut={})

    def rows(self, window: int, columns: tuple[str, ...] | None = None) -> RowsBatch:
        """One value of a device, added to a window."""
        bounds = [START + window * 60, START + window * 60 + 60]
        row = [*bounds, "a", 1, 1, 1.0, 1, 1.0, 0.0, 1.0, 1.0, 1.0]
        return RowsBatch(**self.number(), columns=columns or row_columns(self.schema), rows=[row])
