"""A chain of stateless operators as one instance: one compiled function over a list of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, Row
from edgert.expr.compile import inline_chain
from edgert.flow.graph import Node
from edgert.operators.base.inline import Fields, Inlinable, Lines
from edgert.operators.base.logic import NOT_IN_TABLE, Emission, Now
from edgert.operators.models.predict import Predictions
from edgert.operators.stateless import chain_of


class Chain(Inlinable):
    """Rows that fail a step are lost alone, and counted by operator and reason. State: models that came by message."""

    repeatable = True
    at_once = True

    def __init__(self, nodes: Sequence[Node], live: frozenset[str] | None = None) -> None:
        super().__init__()
        self._nodes, self._live = tuple(nodes), live
        self.predictions = Predictions(nodes)
        self.generation = 0
        """Grows whenever the chain is compiled anew."""
        self._chain, self._names = chain_of(self._nodes, live, self.predictions)

    def renew(self) -> None:
        """Compiles the chain anew if a model came."""
        if self.predictions.take():
            self._compile()

    def _compile(self) -> None:
        self._chain, self._names = chain_of(self._nodes, self._live, self.predictions)
        self.generation += 1

    def tail(self, at: int) -> Chain:
        """The chain from its operator number `at` on, with the same models."""
        made = Chain(self._nodes[at:], self._live)
        made.predictions.models = {n: m for n, m in self.predictions.models.items() if n in made.predictions.nodes}
        made._compile()
        return made

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        self.renew()
        rows = self._apply(batch.rows) if batch.rows else []
        if not rows and batch.watermark == NO_WATERMARK:
            return ()
        return (Emission(0, Batch(rows, batch.arrival, batch.watermark)),)

    def _apply(self, rows: list[Row]) -> list[Row]:
        self.count_lacking(len(rows))
        rows, bad = self._chain.apply(rows)
        for lost in bad:
            where = f"{lost.reason} in {self._names[lost.step]}"
            self.drops[where] += 1
            self.lost.append((lost.row, f"{where}: {lost.detail}"))
        self.count_missed()
        return rows

    @property
    def text_length(self) -> int:
        return len(self._chain.source)

    def inline(self, row: Fields, source: int) -> Lines:
        chain = self._chain
        made = inline_chain(chain, row.variables, row.sure, row.finite | row.numbers)
        given = chain.fields_of(tuple(row.variables))
        fields = {name: made.fields[name] for name in given if name in made.fields}  # others nobody looks at
        gone = ["if which >= 0:", "    missed[which] += 1"] if made.misses else []
        return Lines(
            check=made.lines,
            gone=gone,
            row=Fields(fields, made.sure, row.finite, made.numbers - row.finite, row.captured),
            constants={**made.constants, "missed": chain.missed},
            count=self._count if made.misses or self.predictions.lacking() else None,
        )

    def _count(self, rows: int) -> None:
        if rows:
            self.count_lacking(rows)
            self.count_missed()

    def count_missed(self) -> None:
        """Rows that were dropped because a table says nothing of them."""
        missed = self._chain.missed
        if any(missed):
            for step, rows in enumerate(missed):
                if rows:
                    self.drops[f"{NOT_IN_TABLE} {self._names[step]}"] += rows
                    missed[step] = 0

    def count_lacking(self, rows: int) -> None:
        """Predictions that were null because there was no model."""
        for operator in self.predictions.lacking():
            self.drops[f"no model yet for {operator} (predictions)"] += rows

    def delta(self) -> Any | None:
        self.renew()
        return self.predictions.delta()

    def snapshot(self) -> Any | None:
        return self.predictions.snapshot()

    def restore(self, state: Any) -> None:
        self.predictions.restore(state)
        self._compile()
