"""An error boundary around an operator that fails on chosen rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, Row
from edgert.flow.options.on_error import OnError
from edgert.operators.base.error_boundary import ErrorBoundary
from edgert.operators.base.logic import Emission, Logic, Message, Now

NOW = Now(0.0, 0.0)
BATCHES = st.lists(st.lists(st.sampled_from([0, 0, 0, 0, 1, 2, 3, 9]), max_size=8), max_size=8)
"""Rows by how often they make the operator raise."""


def row_of(n: int) -> Row:
    return {"time": 0.0, "source": "a", "n": n}


class Fussy(Logic):
    """Says something, counts something and takes note of each row until it comes to one on which it raises."""

    def __init__(self, repeatable: bool) -> None:
        super().__init__()
        self.repeatable = repeatable
        self.state: list[int] = []
        """Rows that were taken; one that cannot be repeated keeps them though it raised."""
        self.given: list[int] = []

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        taken: list[int] = []
        try:
            for row in batch.rows:
                self.given.append(row["n"])
                self.messages.append(Message(f"t/{row['n']}", b""))
                self.drops["values"] += 1
                if row["faults"][0] > 0:
                    row["faults"][0] -= 1
                    raise ValueError(f"row {row['n']}")
                taken.append(row["n"])
        except ValueError:
            if not self.repeatable:
                self.state += taken
            raise
        self.state += taken
        return (Emission(0, Batch(list(batch.rows), batch.arrival, batch.watermark)),)


def batches_of(faults: list[list[int]]) -> list[Batch]:
    number = 0
    batches = []
    for at, some in enumerate(faults):
        rows: list[Row] = []
        for fault in some:
            rows.append({**row_of(number), "faults": [fault]})
            number += 1
        batches.append(Batch(rows, 0.0, float(at), 10 * len(rows)))
    return batches


class Driven:
    """A boundary, its operator and what came out. What is held comes again before anything else."""

    def __init__(self, logic: Fussy, policy: OnError, patient: bool = True) -> None:
        self.logic, self.boundary = logic, ErrorBoundary(logic)
        self.boundary.flow, self.boundary.operator, self.boundary.policy, self.boundary.patient = (
            "f",
            "op",
            policy,
            patient,
        )
        self.out: list[int] = []
        self.marks: list[float] = []
        self.waits: list[float] = []

    def feed(self, batches: Sequence[Batch]) -> None:
        waiting: list[Any] = list(batches)
        while waiting:
            for _, batch in self.boundary.process(waiting.pop(0), 0, NOW):
                self.out += [row["n"] for row in batch.rows]
                if batch.watermark != NO_WATERMARK:
                    self.marks.append(batch.watermark)
            if self.boundary.held:
                self.waits.append(self.boundary.wait_s)
            waiting, self.boundary.held = [*self.boundary.held, *waiting], []
