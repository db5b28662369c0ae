"""A tumbling window of ten seconds with every aggregate, and rows for it."""

from __future__ import annotations

from typing import Any

from edgert.core.batch import Batch, Row
from edgert.operators.base.logic import Now
from edgert.operators.state.aggregate_calls import Aggregate, parse_aggregate
from edgert.operators.windows import TumblingWindow

SIZE = 10.0
NOW = Now(0.0, 0.0)
WRITTEN = {
    "n": "count()", "some": "count(v)", "total": "sum(v)", "mean_v": "mean(v)", "var_v": "variance(v)",
    "low": "min(v)", "high": "max(v)", "named": "count(text)",
}  # fmt: skip
AGGREGATES = tuple(parse_aggregate(name, text) for name, text in WRITTEN.items())


def window(aggregates: tuple[Aggregate, ...] = AGGREGATES, **options: Any) -> TumblingWindow:
    return TumblingWindow("minute", SIZE, aggregates, options.pop("keys", (("source", "string"),)), **options)


def row(time: float, v: object = 1.0, source: object = "a", **more: object) -> Row:
    return {"time": time, "source": source, "v": v, **more}


def at(watermark: float, *rows: Row) -> Batch:
    return Batch(list(rows), 0.0, watermark)


def rows_at(emissions: Any, port: int) -> list[Row]:
    return [r for e in emissions if e.port == port for r in e.batch.rows]
