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
from typing import Any, Final

import xxhash

from edgert.core.compression import compressed, expanded_untrusted
from edgert.core.errors import PayloadError, show
from edgert.core.ids import FLOW_NAME, GATEWAY_NAME
from edgert.core.packing import pack
from edgert.core.plain import is_integer, is_texts
from edgert.core.results.maps import MOST_ROWS, VERSION, map_untrusted, result_map_untrusted
from edgert.core.results.pieces import Piece, piece_untrusted
from edgert.core.results.result_schema import MOST_COUNT, Schema, schema_untrusted

MOST_STREAMS: Final = 16
"""Streams of one epoch, since acknowledgements name them all. A gateway opens another epoch instead of one more."""
PARTITIONS: Final = 16
"""Into so many parts the results of a fleet are divided, by gateway. Fixed: gateways know their partition without being
told, and however many collectors there are (16 at most with work to do), no gateway has to be changed for it."""
HELLO_EPOCHS: Final = 8
"""Epochs that a hello names at most."""
MOST_TOKEN: Final = 16
"""Bytes of a hello's token."""

MOST_DROPS: Final = 256
"""Entries of one batch of drops."""
MOST_NAME: Final = 256
"""Characters of an operator's name or a reason among them."""

MOST_DAYS: Final = 16
"""Days (UTC) in which the windows of one batch begin, at most: each day is a file of its own in the landing table, and
costs the collector time and memory however few its rows are."""
DAY_US: Final = 86_400_000_000

INT64: Final = range(-(2**63), 2**63)
Drop = tuple[str, str, int]
"""(operator, reason, how many messages or rows)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """Fields of every result with a number."""

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
class DropsBatch(Numbered):
    """Drops of a flow's input that were not told before: 1 to `MOST_DROPS` entries, each of a name and a reason of
    `MOST_NAME` characters at most and a count from 1 to `MOST_COUNT`."""

    drops: Sequence[Drop]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedBatch(Numbered):
    """A numbered result whose body is wrong: it goes to quarantine as it came, and its number is passed."""

    reason: str
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochHello:
    """A gateway asks, at each connect and before it ships, for the acknowledgement of one flow."""

    gateway: str
    flow: str
    epochs: tuple[int, ...] = ()
    """Epochs that the gateway has, at most `HELLO_EPOCHS`, newest first: the answer tells of these besides the greatest
    that the tables have."""
    token: bytes = b""
    """At most `MOST_TOKEN` random bytes that the answer repeats, so that an answer to an earlier hello is none to this
    one; empty where no MAC is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """Landed results of a gateway: (flow, epoch, stream) -> all of it up to this sequence."""

    gateway: str
    collector: str
    acks: Mapping[tuple[str, int, int], int]
    answers: tuple[str, ...] = ()
    """The flows whose hello this message answers; a flow of these that is not in `acks` is not known yet."""
    tokens: Mapping[str, bytes] = field(default_factory=dict)
    """Flow -> token of the hello that this message answers, where it had one."""

    def greatest_epoch(self, flow: str) -> int | None:
        """The greatest epoch known of `flow`, or None."""
        return max((epoch for name, epoch, _ in self.acks if name == flow), default=None)


Result = OpenBatch | RowsBatch | GapBatch | DropsBatch | RefusedBatch | EpochHello
"""Messages of a gateway to the collector, whole."""


def day_of(window_start: float) -> int:
    """The day in which a window begins, counted from 1970 (UTC); as the landing table has it, to the microsecond."""
    return round(window_start * 1e6) // DAY_US


def partition_of(gateway: str) -> int:
    """The partition of a gateway's results, 0 to `PARTITIONS` - 1."""
    return xxhash.xxh64_intdigest(gateway.encode()) % PARTITIONS


def results_topic(fleet: str, gateway: str, flow: str) -> str:
    """Where a gateway publishes the results of one flow."""
    return f"edgert/v1/{fleet}/@results/{partition_of(gateway)}/{gateway}/{flow}"


def results_filter(fleet: str, partition: int | None = None) -> str:
    """The topic filter of a collector: the results of one partition, or (None) all."""
    return f"edgert/v1/{fleet}/@results/{'+' if partition is None else partition}/+/+"


def acks_topic(fleet: str, gateway: str) -> str:
    """Where a gateway finds its acknowledgement (retained)."""
    return f"edgert/v1/{fleet}/@acks/{gateway}"


def pack_result(result: OpenBatch | RowsBatch | GapBatch | DropsBatch | EpochHello) -> bytes:
    """One result as the payload of one MQTT message. Rows are compressed where that makes them smaller."""
    head: dict[str, Any] = {"v": VERSION, "gateway": result.gateway, "flow": result.flow}
    if isinstance(result, EpochHello):
        token = {"token": result.token} if result.token else {}
        return pack({**head, "kind": "hello", "epochs": list(result.epochs), **token})
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
        case DropsBatch():
            body = {"kind": "drops", "drops": result.drops}
    return pack({**head, **body})


def unpack_result_untrusted(payload: bytes) -> Result | Piece:
    """Read one result, compressed or not, or a piece. Raises `PayloadError` if not even its number can be read."""
    plain, fault = result_map_untrusted(expanded_untrusted(payload))
    gateway = _name(plain, "gateway", GATEWAY_NAME)
    flow = _name(plain, "flow", FLOW_NAME)
    if plain.get("kind") == "hello":
        epochs, token = _epochs(plain.get("epochs", [])), plain.get("token", b"")
        if not _is_token(token):
            raise PayloadError(f"token: expected at most {MOST_TOKEN} bytes, got {show(token)}")
        return EpochHello(gateway=gateway, flow=flow, epochs=epochs, token=token)
    if plain.get("kind") == "piece":
        return piece_untrusted(plain, gateway, flow)
    number: dict[str, Any] = {
        "gateway": gateway,
        "flow": flow,
        "epoch": _integer(plain, "epoch", 0),
        "stream": _integer(plain, "stream", 0, MOST_STREAMS),
        "sequence": _integer(plain, "sequence", 1),
        "flow_version": _integer(plain, "flow_version", 0, 2**31),
    }
    try:
        if fault:
            raise fault
        return _body(plain, number)
    except PayloadError as error:
        return RefusedBatch(**number, reason=str(error), payload=payload)


def _body(plain: Mapping[str, Any], number: dict[str, Any]) -> Result:
    kind = plain.get("kind")
    if kind == "rows":
        columns, rows = plain.get("columns"), plain.get("rows")
        if not is_texts(columns) or not isinstance(rows, list):
            raise PayloadError(f"rows: expected columns (texts) and rows (a list), got {show(columns)}, {show(rows)}")
        if len(rows) > MOST_ROWS:
            raise PayloadError(f"rows: expected at most {MOST_ROWS}, got {len(rows)}")
        return RowsBatch(**number, columns=tuple(columns), rows=rows)
    if kind == "open":
        parent = plain.get("parent")
        if parent is not None and not (is_integer(parent) and 0 <= parent < number["epoch"]):
            raise PayloadError(f"parent: expected an epoch older than {number['epoch']} or nil, got {show(parent)}")
        cut = _cut(plain.get("cut"))
        return OpenBatch(**number, schema=schema_untrusted(plain.get("schema")), parent=parent, cut=cut)
    if kind == "gap":
        rows, reason, text = plain.get("rows"), plain.get("reason"), plain.get("text", "")
        if not isinstance(reason, str) or not isinstance(text, str):
            raise PayloadError(f"gap: expected reason and text as texts, got {show(reason)}, {show(text)}")
        if rows is not None and not (is_integer(rows) and 0 <= rows <= MOST_COUNT):
            raise PayloadError(f"gap: expected rows as an integer from 0 to {MOST_COUNT} or nil, got {show(rows)}")
        numbers = plain.get("numbers", 1)
        if not is_integer(numbers) or not 1 <= numbers <= number["sequence"]:
            raise PayloadError(f"gap: expected numbers from 1 to {number['sequence']}, got {show(numbers)}")
        return GapBatch(**number, reason=reason, rows=rows, text=text, numbers=numbers)
    if kind == "drops":
        return DropsBatch(**number, drops=_drops(plain.get("drops")))
    raise PayloadError(f"kind: expected open, rows, gap, drops or hello, got {show(kind)}")


def _drops(plain: object) -> tuple[Drop, ...]:
    if not isinstance(plain, list) or not 1 <= len(plain) <= MOST_DROPS:
        raise PayloadError(f"drops: expected a list of 1 to {MOST_DROPS} entries, got {show(plain)}")
    for entry in plain:
        if not (
            isinstance(entry, list)
            and len(entry) == 3
            and all(isinstance(text, str) and len(text) <= MOST_NAME for text in entry[:2])
            and is_integer(entry[2])
            and 1 <= entry[2] <= MOST_COUNT
        ):
            raise PayloadError(
                f"drops: expected [operator, reason, count], texts of at most {MOST_NAME} characters and an integer "
                f"from 1 to {MOST_COUNT}, got {show(entry)}"
            )
    return tuple((operator, reason, count) for operator, reason, count in plain)


def _cut(plain: object) -> dict[int, int]:
    if plain is None:
        return {}
    if not isinstance(plain, dict) or not all(
        is_integer(k) and is_integer(v) and 0 <= k < MOST_STREAMS and 0 <= v < INT64.stop for k, v in plain.items()
    ):
        raise PayloadError(
            f"cut: expected a map from stream (below {MOST_STREAMS}) to sequence (64 bits), got {show(plain)}"
        )
    return dict(plain)


def lineage_text(batch: OpenBatch) -> str:
    """The `lineage` column of the landing table on the row of an open batch (JSON)."""
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
            **({"tokens": dict(acknowledgement.tokens)} if acknowledgement.tokens else {}),
        }
    )


def unpack_acknowledgement_untrusted(payload: bytes) -> Acknowledgement:
    """Read an acknowledgement. Raises `PayloadError`: one that is wrong in any part is not used at all."""
    plain = map_untrusted(payload, "an acknowledgement")
    collector, answers, entries = plain.get("collector"), plain.get("answers", []), plain.get("acks")
    if not isinstance(collector, str) or not is_texts(answers) or not isinstance(entries, list):
        raise PayloadError(f"acknowledgement: expected collector, answers and acks, got {show(plain)}")
    acks: dict[tuple[str, int, int], int] = {}
    for entry in entries:
        if not (
            isinstance(entry, list)
            and len(entry) == 4
            and isinstance(entry[0], str)
            and all(is_integer(n) and 0 <= n < INT64.stop for n in entry[1:])
        ):
            raise PayloadError(f"acks: expected [flow, epoch, stream, sequence], got {show(entry)}")
        acks[(entry[0], entry[1], entry[2])] = entry[3]
    tokens = plain.get("tokens", {})
    if not isinstance(tokens, dict) or not all(isinstance(k, str) and _is_token(v) for k, v in tokens.items()):
        raise PayloadError(f"tokens: expected a map from flow to at most {MOST_TOKEN} bytes, got {show(tokens)}")
    gateway = _name(plain, "gateway", GATEWAY_NAME)
    return Acknowledgement(gateway=gateway, collector=collector, acks=acks, answers=tuple(answers), tokens=tokens)


def _is_token(value: object) -> bool:
    return isinstance(value, bytes) and len(value) <= MOST_TOKEN


def _name(plain: Mapping[str, Any], key: str, pattern: re.Pattern[str]) -> str:
    value = plain.get(key)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise PayloadError(f"{key}: expected a name like {pattern.pattern}, got {show(value)}")
    return value


def _integer(plain: Mapping[str, Any], key: str, least: int, below: int = INT64.stop) -> int:
    value = plain.get(key)
    if not is_integer(value) or not least <= value < below:
        raise PayloadError(f"{key}: expected an integer from {least} and below {below}, got {show(value)}")
    return int(value)


def _epochs(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > HELLO_EPOCHS or not all(is_integer(e) and e in INT64 for e in value):
        raise PayloadError(f"epochs: expected at most {HELLO_EPOCHS} integers of 64 bits, got {show(value)}")
    return tuple(value)
