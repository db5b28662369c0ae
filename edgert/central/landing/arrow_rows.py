"""Results as Arrow tables, ready to be appended. Column types are those of the design's tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from edgert.central.landing.checks import CheckedRows
from edgert.central.landing.lineage import Opening
from edgert.central.tables.table import TIME
from edgert.core.errors import show
from edgert.core.results.result_schema import Schema, partial_columns, schema_untrusted
from edgert.core.results.results import DAY_US, DropsBatch, GapBatch, OpenBatch, RefusedBatch, RowsBatch, lineage_text

LandingBatch = OpenBatch | RowsBatch | GapBatch | DropsBatch | RefusedBatch
_TYPES: Final = {
    "string": pa.string(),
    "double": pa.float64(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
}
KEPT_BYTES: Final = 65_536
KEPT_TEXT: Final = 1_024
"""Characters of a reason or a topic in quarantine."""
KEPT_ROWS: Final = 100
"""Most rows that are kept of a whole batch in quarantine."""
WHOLE: Final = object()
"""In place of a row: the whole batch is refused. Nothing that a gateway can send."""
_TOGETHER: Final = 16
"""Batches of drops that are turned into columns together. One by one, many small ones take long to write; all at once,
or with a dictionary for each row, full ones take twice the memory."""
_NUMBER: Final = (
    ("gateway", pa.string()),
    ("epoch", pa.int64()),
    ("stream", pa.int32()),
    ("sequence", pa.int64()),
    ("flow_version", pa.int32()),
)
_GAPS: Final = pa.schema(
    [
        ("received", TIME),
        ("flow", pa.string()),
        *_NUMBER,
        ("reason", pa.string()),
        ("rows", pa.int64()),
        ("text", pa.string()),
        ("first_sequence", pa.int64()),
        ("day", pa.date32()),
    ]
)
_DROPS: Final = pa.schema(
    [
        ("received", TIME),
        ("flow", pa.string()),
        *_NUMBER,
        ("operator", pa.string()),
        ("reason", pa.string()),
        ("count", pa.int64()),
        ("day", pa.date32()),
    ]
)
_QUARANTINE: Final = pa.schema(
    [
        ("received", TIME),
        ("flow", pa.string()),
        *_NUMBER,
        ("reason", pa.string()),
        ("row", pa.string()),
        ("topic", pa.string()),
        ("payload", pa.binary()),
        ("day", pa.date32()),
    ]
)


def landing_schema(schema: Schema) -> pa.Schema:
    """Columns of `landing/<flow>`."""
    return pa.schema(
        [
            *_NUMBER,
            ("lineage", pa.string()),
            ("window_start", TIME),
            ("window_end", TIME),
            *((name, _TYPES[kind]) for name, kind in (*schema.keys, *partial_columns(schema))),
            ("day", pa.date32()),
        ]
    )


def landing_rows(batches: Iterable[tuple[LandingBatch, CheckedRows | None]], schema: Schema) -> pa.Table:
    """Opening batches (one row each, day null) and checked rows as rows of `landing/<flow>`."""
    whole = landing_schema(schema)
    parts = [_landing_part(batch, checked, whole) for batch, checked in batches]
    return pa.concat_tables(parts) if parts else whole.empty_table()


def noted_rows(openings: Iterable[Opening], schema: Schema) -> pa.Table:
    """Opening rows for a table in which those epochs have no rows: without a schema."""
    rows = [
        {"gateway": o.gateway, "epoch": o.epoch, "stream": 0, "sequence": 1, "lineage": _noted(o)} for o in openings
    ]
    return pa.Table.from_pylist(rows, schema=landing_schema(schema))


def _noted(opening: Opening) -> str:
    return json.dumps({"parent": opening.parent, "cut": dict(opening.cut)})


def _landing_part(batch: LandingBatch, checked: CheckedRows | None, whole: pa.Schema) -> pa.Table:
    count = checked.count if checked else 1
    columns: dict[str, list[Any]] = dict(checked.columns) if checked else {}
    for name, _ in _NUMBER:
        columns[name] = [getattr(batch, name)] * count
    if isinstance(batch, OpenBatch):
        columns["lineage"] = [lineage_text(batch)]
    if checked:
        columns["day"] = checked.days
    empty = [None] * count
    return pa.table([pa.array(_plain(columns.get(f.name, empty), f.type), f.type) for f in whole], schema=whole)


def _plain(values: list[Any], kind: pa.DataType) -> list[Any]:
    """Arrow takes no integer for a double where it would lose digits; we do."""
    if kind == pa.float64():
        return [None if v is None else float(v) for v in values]
    return values


def gap_rows(gaps: Sequence[GapBatch], wall: float) -> pa.Table:
    """Rows of `gaps`. `wall`: seconds since the epoch."""
    rows = [
        {
            **_number(b),
            **_received(wall),
            "reason": b.reason[:KEPT_BYTES],
            "rows": b.rows,
            "text": b.text[:KEPT_BYTES],
            "first_sequence": b.first,
        }
        for b in gaps
    ]
    return pa.Table.from_pylist(rows, schema=_GAPS)


def drop_rows(batches: Sequence[DropsBatch], wall: float) -> pa.Table:
    """Rows of `drops`, one for each entry. `wall`: seconds since the epoch."""
    starts = range(0, len(batches), _TOGETHER)
    parts = [_drops_part(batches[at : at + _TOGETHER], _received(wall)) for at in starts]
    return pa.concat_tables(parts) if parts else _DROPS.empty_table()


def _drops_part(batches: Sequence[DropsBatch], received: Mapping[str, Any]) -> pa.Table:
    columns: dict[str, list[Any]] = {name: [] for name in _DROPS.names}
    for batch in batches:
        for name, value in {**_number(batch), **received}.items():
            columns[name] += [value] * len(batch.drops)
        for name, values in zip(("operator", "reason", "count"), zip(*batch.drops, strict=True), strict=True):
            columns[name] += values
    return pa.table(columns, schema=_DROPS)


def refused_rows(refused: Sequence[tuple[LandingBatch, Any, str]], wall: float) -> pa.Table:
    """(batch, row or `WHOLE`, reason) as rows of `quarantine`."""
    rows = []
    for batch, row, reason in refused:
        payload = batch.payload[:KEPT_BYTES] if isinstance(batch, RefusedBatch) else None
        text = _text(row) if row is not WHOLE else None if payload else _text(_body(batch))
        why = reason[:KEPT_TEXT]
        rows.append({**_number(batch), **_received(wall), "reason": why, "row": text, "payload": payload})
    return pa.Table.from_pylist(rows, schema=_QUARANTINE)


def payload_rows(payloads: Sequence[tuple[str, bytes, str]], wall: float) -> pa.Table:
    """(topic, payload, reason) of messages without a readable number as rows of `quarantine`."""
    rows = [
        {
            **_received(wall),
            "topic": topic[:KEPT_TEXT],
            "payload": payload[:KEPT_BYTES],
            "reason": reason[:KEPT_TEXT],
        }
        for topic, payload, reason in payloads
    ]
    return pa.Table.from_pylist(rows, schema=_QUARANTINE)


def has_schema(text: str) -> bool:
    """True if the `lineage` column of an opening row may have a schema: told without reading it."""
    return '"schema"' in text


def lineage_of(text: str) -> tuple[Schema | None, int | None, dict[int, int]]:
    """(schema, parent, cut) from the `lineage` column of an opening row; no schema where it is only noted."""
    plain = json.loads(text)
    schema = schema_untrusted(plain["schema"]) if "schema" in plain else None
    return schema, plain["parent"], {int(s): int(n) for s, n in plain["cut"].items()}


def _number(batch: LandingBatch) -> dict[str, Any]:
    return {"flow": batch.flow, **{name: getattr(batch, name) for name, _ in _NUMBER}}


def _received(wall: float) -> dict[str, Any]:
    micros = round(wall * 1e6)
    return {"received": micros, "day": micros // DAY_US}


def _body(batch: LandingBatch) -> Any:
    if isinstance(batch, OpenBatch):
        return batch.schema.plain()
    if isinstance(batch, DropsBatch):
        return list(batch.drops)
    return {"columns": batch.columns, "rows": batch.rows[:KEPT_ROWS]} if isinstance(batch, RowsBatch) else None


def _text(value: Any) -> str:
    """Returns a value as text, in JSON where possible (not with bytes as a key, nor nested without end). Only as much
    is rendered as is kept."""
    try:
        text = ""
        for part in json.JSONEncoder(default=repr, ensure_ascii=False).iterencode(value):
            text += part
            if len(text) >= KEPT_BYTES:
                break
        return text[:KEPT_BYTES]
    except (TypeError, ValueError, RecursionError):
        return show(value, KEPT_BYTES)
