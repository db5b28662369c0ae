"""A chain of stateless operators as one instance: one compiled function over a list of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, Row
from edgert.expr.compile import Step
from edgert.flow.graph import Node
from edgert.operators.logic import Emission, Logic, Now
from edgert.operators.stateless import chain_of


class Fused(Logic):
    """Rows that fail a step are lost alone, and counted by operator and reason."""

    def __init__(self, nodes: Iterable[Node], live: frozenset[str] | None = None) -> None:
        super().__init__()
        self._chain, self._names = chain_of(nodes, live)

    @property
    def steps(self) -> tuple[Step, ...]:
        """What it does to a row."""
        return self._chain.steps

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        rows = self.apply(batch.rows) if batch.rows else []
        if not rows and batch.watermark == NO_WATERMARK:
            return ()
        size = batch.size * len(rows) // len(batch.rows) if batch.rows else 0
        return (Emission(0, Batch(rows, batch.arrival, batch.watermark, size)),)

    def apply(self, rows: list[Row]) -> list[Row]:
        """The rows behind the chain; those that fail a step are counted."""
        rows, bad = self._chain.apply(rows)
        for lost in bad:
            self.drops[f"{lost.reason} in {self._names[lost.step]}"] += 1
        return rows
