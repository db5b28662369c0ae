"""An outbox with a quota: flows, results of a given size, a clock."""

from __future__ import annotations

from typing import Any

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.ids import make_epoch
from edgert.core.results.result_schema import Schema
from edgert.core.results.results import RowsBatch
from edgert.store.state.records import StoredFlow

SCHEMA = Schema(60.0, (("source", "string"),), (("n", "count"),))
COLUMNS = ("window_start", "window_end", "source", "n")
E1, E2 = make_epoch(1, 7), make_epoch(2, 7)
KEEPS = {"outbox": {"full": "stop-acknowledging"}}


class Clock:
    """Monotonic seconds, turned by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def stored(name: str = "f", epoch: int = E1, document: Any = None, version: int = 1) -> StoredFlow:
    return StoredFlow(name, document or {}, version, "mqtt", False, epoch, Position())


def results(name: str, *numbers: int, size: int = 0) -> Checkpoint:
    """A row for each of `numbers`, which make it known; `size`: bytes more per row."""
    return Checkpoint(name, Position(), [], b"", COLUMNS, [[0.0, 60.0, "x" * size, n] for n in numbers])


def numbers(found: list[Any]) -> list[int]:
    return [row[3] for batch in found if isinstance(batch, RowsBatch) for row in batch.rows]
