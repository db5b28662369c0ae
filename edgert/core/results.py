"""Results on their way to the central side, and the acknowledgements that come back: the wire format of both.

A result is one MQTT message: a MessagePack map. Every result but `hello` carries a number, (gateway, flow, epoch,
stream, sequence), that never means two things. The first number of an epoch (stream 0, sequence 1) is its `open`
batch, which says what the rows of the epoch look like and where the epoch comes from. The map may come compressed.

Bytes from outside are read by the `_untrusted` functions. A result whose number is readable but whose body is not
becomes a `RefusedBatch`, since its number has to be passed, or the stream would stop for ever; all else that is
wrong raises `PayloadError`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

import xxhash

from edgert.core.compression import compressed, expanded_untrusted
from edgert.core.errors import PayloadError, show
from edgert.core.ids import FLOW_NAME, GATEWAY_NAME
from edgert.core.packing import pack, unpack_untrusted

VERSION: Final = 1
KEY_TYPES: Final = ("string", "double", "long", "boolean")
AGGREGATES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "count": (("", "long"),),
    "sum": (("", "double"),),
    "min": (("", "double"),),
    "max": (("", "double"),),
    "mean": (("__count", "long"), ("__sum", "double")),
    "variance": (("__count", "long"), ("__mean", "double"), ("__m2", "double")),
    "distinct": (("__hll", "binary"),),
    "distinct_set": (("__theta", "binary"),),
    "quantiles": (("__kll", "binary"),),
}
"""Aggregate -> its partial columns as (suffix of the aggregate's name, type). Binary: DataSketches bytes or null."""
MOST_STREAMS: Final = 16
"""Streams of one epoch, since acknowledgements name them all. A gateway opens another epoch instead of one more."""
QUANTILES: Final[Mapping[str, float]] = {"__p05": 0.05, "__p50": 0.5, "__p95": 0.95}
"""Suffix of the column -> rank. Nearer to 0 or 1 a sketch of this size is too rough."""
PARTITIONS: Final = 16
"""Into so many parts the results of a fleet are divided, by gateway. Fixed: gateways know their partition without being
told, and however many collectors there are (16 at most with work to do), no gateway has to be changed for it."""
FINALS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "count": (("", "long"),),
    **dict.fromkeys(("sum", "min", "max", "mean", "variance"), (("", "double"),)),
    "distinct": (("", "long"), ("__hll", "binary")),
    "distinct_set": (("", "long"), ("__theta", "binary")),
    "quantiles": (*((suffix, "double") for suffix in QUANTILES), ("__kll", "binary")),
}
"""Aggregate -> its columns in the fleet table, as above. A window's own result has all but the binary ones."""
HLL_LG_K: Final = 12
THETA_LG_K: Final = 12
KLL_K: Final = 200
"""Sizes of the sketches, common to all, so that any two merge without losing accuracy: standard errors of 1.6 %, ranks
wrong by 1.3 % at most with 99 % confidence; 2.1, 33 and some 5 kB."""
HELLO_EPOCHS: Final = 8
"""Epochs that a hello names at most."""
WINDOW_COLUMNS: Final = ("window_start", "window_end")
RESERVED_COLUMNS: Final = frozenset(
    (*WINDOW_COLUMNS, "gateway", "epoch", "stream", "sequence", "flow_version", "lineage", "day", "gateways")
)
"""Names that the tables use themselves: neither a key nor an aggregate may have one (whatever the case)."""

COLUMN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
INT64: Final = range(-(2**63), 2**63)
_MAX_COLUMNS: Final = 512


@dataclass(frozen=True, slots=True)
class Schema:
    """What the rows of an epoch look like: window size in seconds, (key, type) and (aggregate's name, kind)."""

    window_s: float
    keys: tuple[tuple[str, str], ...]
    aggregates: tuple[tuple[str, str], ...]

    def plain(self) -> dict[str, Any]:
        """The same of JSON types only, as it travels and as it stands in the landing table."""
        return {
            "window_s": self.window_s,
            "keys": [list(k) for k in self.keys],
            "aggregates": [list(a) for a in self.aggregates],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """What every result with a number carries."""

    gateway: str
    flow: str
    epoch: int
    stream: int
    sequence: int
    flow_version: int

    @property
    def first(self) -> int:
        """The first number that it stands for; the last one is `sequence`."""
        return self.sequence

    @property
    def application(self) -> str:
        """The stream's name in Delta's transaction identifiers: `gateway/flow/epoch/stream`."""
        return f"{self.gateway}/{self.flow}/{self.epoch}/{self.stream}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBatch(Numbered):
    """Opens an epoch: the schema of its rows and, after a fallback, where the parent epoch is cut.

    `cut` is the last valid sequence per stream of the parent; a stream that is not in it counts with no row.
    """

    schema: Schema
    parent: int | None = None
    cut: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsBatch(Numbered):
    """Contributions to windows. From outside, `rows` are not checked: neither their length nor their types."""

    columns: Sequence[str]
    rows: Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GapBatch(Numbered):
    """Rows that will never come, and why. `rows` is None where their number cannot be known.

    It may stand for several numbers of its stream, the last of which is `sequence`.
    """

    reason: str
    rows: int | None = None
    text: str = ""
    numbers: int = 1

    @property
    def first(self) -> int:
        return self.sequence - self.numbers + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedBatch(Numbered):
    """A numbered result whose body is wrong: it goes to quarantine as it came, and its number is passed."""

    reason: str
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A gateway asks, at each connect and before it ships, for the acknowledgement of one flow."""

    gateway: str
    flow: str
    epochs: tuple[int, ...] = ()
    """Those that the gateway has, at most `HELLO_EPOCHS`, newest first: the answer tells of these besides the greatest
    that the tables have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """What the landing tables hold of a gateway: (flow, epoch, stream) -> all of it up to this sequence."""

    gateway: str
    collector: str
    acks: Mapping[tuple[str, int, int], int]
    answers: tuple[str, ...] = ()
    """The flows whose hello this message answers; a flow of these that is not in `acks` is not known yet."""

    def greatest_epoch(self, flow: str) -> int | None:
        """The greatest epoch known of `flow`, or None."""
        return max((epoch for name, epoch, _ in self.acks if name == flow), default=None)


Result = OpenBatch | RowsBatch | GapBatch | RefusedBatch | Hello


def partition_of(gateway: str) -> int:
    """The partition of a gateway's results, 0 to `PARTITIONS` - 1."""
    return xxhash.xxh64_intdigest(gateway.encode()) % PARTITIONS


def results_topic(fleet: str, gateway: str, flow: str) -> str:
    """Where a gateway publishes the results of one flow."""
    return f"edgert/v1/{fleet}/@results/{partition_of(gateway)}/{gateway}/{flow}"


def results_filter(fleet: str, partition: int | None = None) -> str:
    """What a collector subscribes to: the results of one partition, or (None) all."""
    return f"edgert/v1/{fleet}/@results/{'+' if partition is None else partition}/+/+"


def acks_topic(fleet: str, gateway: str) -> str:
    """Where a gateway finds its acknowledgement (retained)."""
    return f"edgert/v1/{fleet}/@acks/{gateway}"


def partial_columns(schema: Schema) -> tuple[tuple[str, str], ...]:
    """(name, type) of the partial columns, in the order in which they stand in a rows batch after the keys."""
    return tuple((name + suffix, kind) for name, how in schema.aggregates for suffix, kind in AGGREGATES[how])


def final_columns(schema: Schema) -> tuple[tuple[str, str], ...]:
    """(name, type) of the aggregates' columns in the fleet table."""
    return tuple((name + suffix, kind) for name, how in schema.aggregates for suffix, kind in FINALS[how])


def row_columns(schema: Schema) -> tuple[str, ...]:
    """The columns of a rows batch: the window's bounds, the keys, the partial columns."""
    return (*WINDOW_COLUMNS, *(k for k, _ in schema.keys), *(c for c, _ in partial_columns(schema)))


def pack_result(result: OpenBatch | RowsBatch | GapBatch | Hello) -> bytes:
    """One result as the payload of one MQTT message. Rows are compressed where that makes them smaller."""
    head: dict[str, Any] = {"v": VERSION, "gateway": result.gateway, "flow": result.flow}
    if isinstance(result, Hello):
        return pack({**head, "kind": "hello", "epochs": list(result.epochs)})
    head.update(epoch=result.epoch, stream=result.stream, sequence=result.sequence, flow_version=result.flow_version)
    body: dict[str, Any]
    match result:
        case OpenBatch():
            body = {
                "kind": "open",
                "schema": result.schema.plain(),
                "parent": result.parent,
                "cut": dict(result.cut),
            }
        case RowsBatch():
            body = {"kind": "rows", "columns": result.columns, "rows": result.rows}
            return compressed(pack({**head, **body}))
        case GapBatch():
            gap = {"reason": result.reason, "rows": result.rows, "text": result.text, "numbers": result.numbers}
            body = {"kind": "gap", **gap}
    return pack({**head, **body})


def unpack_result_untrusted(payload: bytes) -> Result:
    """Read one result, compressed or not. Raises `PayloadError` if not even its number can be read."""
    plain = _map_untrusted(expanded_untrusted(payload), "a result")
    gateway = _name(plain, "gateway", GATEWAY_NAME)
    flow = _name(plain, "flow", FLOW_NAME)
    if plain.get("kind") == "hello":
        return Hello(gateway=gateway, flow=flow, epochs=_epochs(plain.get("epochs", [])))
    number: dict[str, Any] = {
        "gateway": gateway,
        "flow": flow,
        "epoch": _integer(plain, "epoch", 0),
        "stream": _integer(plain, "stream", 0, 2**31),
        "sequence": _integer(plain, "sequence", 1),
        "flow_version": _integer(plain, "flow_version", 0, 2**31),
    }
    try:
        return _body(plain, number)
    except PayloadError as error:
        return RefusedBatch(**number, reason=str(error), payload=payload)


def _body(plain: Mapping[str, Any], number: dict[str, Any]) -> Result:
    kind = plain.get("kind")
    if kind == "rows":
        columns, rows = plain.get("columns"), plain.get("rows")
        if not _is_texts(columns) or not isinstance(rows, list):
            raise PayloadError(f"rows: expected columns (texts) and rows (a list), got {show(columns)}, {show(rows)}")
        return RowsBatch(**number, columns=tuple(columns), rows=rows)
    if kind == "open":
        parent = plain.get("parent")
        if parent is not None and not (_is_integer(parent) and 0 <= parent < number["epoch"]):
            raise PayloadError(f"parent: expected an epoch older than {number['epoch']} or nil, got {show(parent)}")
        cut = _cut(plain.get("cut"))
        return OpenBatch(**number, schema=schema_untrusted(plain.get("schema")), parent=parent, cut=cut)
    if kind == "gap":
        rows, reason, text = plain.get("rows"), plain.get("reason"), plain.get("text", "")
        if not isinstance(reason, str) or not isinstance(text, str):
            raise PayloadError(f"gap: expected reason and text as texts, got {show(reason)}, {show(text)}")
        if rows is not None and not (_is_integer(rows) and rows >= 0):
            raise PayloadError(f"gap: expected rows as an integer of at least 0 or nil, got {show(rows)}")
        numbers = plain.get("numbers", 1)
        if not _is_integer(numbers) or not 1 <= numbers <= number["sequence"]:
            raise PayloadError(f"gap: expected numbers from 1 to {number['sequence']}, got {show(numbers)}")
        return GapBatch(**number, reason=reason, rows=rows, text=text, numbers=numbers)
    raise PayloadError(f"kind: expected open, rows, gap or hello, got {show(kind)}")


def schema_untrusted(plain: object) -> Schema:
    """Read a schema from its plain form. Raises `PayloadError`; the names are safe as columns of a table."""
    if not isinstance(plain, dict):
        raise PayloadError(f"schema: expected a map, got {show(plain)}")
    window_s = plain.get("window_s")
    if isinstance(window_s, bool) or not isinstance(window_s, int | float) or not 0 < window_s <= 1e10:
        raise PayloadError(f"schema.window_s: expected seconds greater than 0, got {show(window_s)}")
    keys = _pairs(plain.get("keys"), "keys", KEY_TYPES)
    aggregates = _pairs(plain.get("aggregates"), "aggregates", tuple(AGGREGATES))
    schema = Schema(float(window_s), keys, aggregates)
    _check_names(schema)
    return schema


def _check_names(schema: Schema) -> None:
    """Columns of a table are told apart whatever their case, so `n` and `N` are one name."""
    names = [n for n, _ in (*schema.keys, *schema.aggregates)]
    seen = set(RESERVED_COLUMNS)
    for name in names:
        if not COLUMN_NAME.fullmatch(name):
            raise PayloadError(f"schema: expected letters, digits and _ as the name of a column, got {show(name)}")
    partials = [c for c, _ in partial_columns(schema)]
    finals = [c for c, _ in final_columns(schema)]
    for group in (dict.fromkeys([k for k, _ in schema.keys]), dict.fromkeys(partials + finals)):
        for name in group:
            if name.lower() in seen:
                raise PayloadError(f"schema: expected a name that is not taken yet, got {show(name)}")
            seen.add(name.lower())
    if any(len(n) != len(set(n)) for n in (names, partials, finals)) or len(seen) > _MAX_COLUMNS:
        raise PayloadError(f"schema: expected at most {_MAX_COLUMNS} different names, got {show(names)}")


def _pairs(plain: object, where: str, allowed: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    if not isinstance(plain, list):
        raise PayloadError(f"schema.{where}: expected a list of pairs, got {show(plain)}")
    for pair in plain:
        if not (_is_texts(pair) and len(pair) == 2 and pair[1] in allowed):
            raise PayloadError(f"schema.{where}: expected [name, {' | '.join(allowed)}], got {show(pair)}")
    return tuple((name, kind) for name, kind in plain)


def _cut(plain: object) -> dict[int, int]:
    if plain is None:
        return {}
    if not isinstance(plain, dict) or not all(
        _is_integer(k) and _is_integer(v) and k >= 0 and v >= 0 for k, v in plain.items()
    ):
        raise PayloadError(f"cut: expected a map from stream to sequence, got {show(plain)}")
    return dict(plain)


def lineage_text(batch: OpenBatch) -> str:
    """What the `lineage` column of the landing table says on the row of an open batch (JSON)."""
    return json.dumps({"parent": batch.parent, "cut": dict(batch.cut), "schema": batch.schema.plain()})


def pack_acknowledgement(acknowledgement: Acknowledgement) -> bytes:
    """An acknowledgement as the payload of one (retained) MQTT message."""
    return pack(
        {
            "v": VERSION,
            "gateway": acknowledgement.gateway,
            "collector": acknowledgement.collector,
            "acks": [[*key, sequence] for key, sequence in acknowledgement.acks.items()],
            "answers": list(acknowledgement.answers),
        }
    )


def unpack_acknowledgement_untrusted(payload: bytes) -> Acknowledgement:
    """Read an acknowledgement. Raises `PayloadError`: one that is wrong in any part is not used at all."""
    plain = _map_untrusted(payload, "an acknowledgement")
    collector, answers, entries = plain.get("collector"), plain.get("answers", []), plain.get("acks")
    if not isinstance(collector, str) or not _is_texts(answers) or not isinstance(entries, list):
        raise PayloadError(f"acknowledgement: expected collector, answers and acks, got {show(plain)}")
    acks: dict[tuple[str, int, int], int] = {}
    for entry in entries:
        if not (
            isinstance(entry, list)
            and len(entry) == 4
            and isinstance(entry[0], str)
            and all(_is_integer(n) and n >= 0 for n in entry[1:])
        ):
            raise PayloadError(f"acks: expected [flow, epoch, stream, sequence], got {show(entry)}")
        acks[(entry[0], entry[1], entry[2])] = entry[3]
    gateway = _name(plain, "gateway", GATEWAY_NAME)
    return Acknowledgement(gateway=gateway, collector=collector, acks=acks, answers=tuple(answers))


def _map_untrusted(payload: bytes, what: str) -> Mapping[str, Any]:
    plain = unpack_untrusted(payload)
    if not isinstance(plain, dict):
        raise PayloadError(f"expected {what} as a map, got {show(plain)}")
    if plain.get("v") != VERSION:
        raise PayloadError(f"v: expected {VERSION} ({what} of this format), got {show(plain.get('v'))}")
    return plain


def _name(plain: Mapping[str, Any], key: str, pattern: re.Pattern[str]) -> str:
    value = plain.get(key)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise PayloadError(f"{key}: expected a name like {pattern.pattern}, got {show(value)}")
    return value


def _integer(plain: Mapping[str, Any], key: str, least: int, below: int = INT64.stop) -> int:
    value = plain.get(key)
    if not _is_integer(value) or not least <= value < below:
        raise PayloadError(f"{key}: expected an integer from {least} and below {below}, got {show(value)}")
    return int(value)


def _epochs(value: Any) -> tuple[int, ...]:
    if (
        not isinstance(value, list)
        or len(value) > HELLO_EPOCHS
        or not all(_is_integer(e) and e in INT64 for e in value)
    ):
        raise PayloadError(f"epochs: expected at most {HELLO_EPOCHS} integers of 64 bits, got {show(value)}")
    return tuple(value)


def _is_integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_texts(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)
