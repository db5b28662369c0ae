"""SenML: the flat array of RFC 8428 and the older `{"e": [...], "bt": ..., "bn": ...}`, values quoted or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from edgert.codecs.base import MAX_ROWS, Captures, Decoded, parse_untrusted, repeated_keys_untrusted
from edgert.codecs.senml_names import legal
from edgert.codecs.senml_pack import LABELS, Resolver, split
from edgert.codecs.senml_shape import Shape, compile_shape, shape_of
from edgert.codecs.shapes import Shapes, Tail
from edgert.core.batch import Row

_encode = msgspec.json.Encoder().encode
_VALUE_KEYS: Final[dict[type, str]] = {float: "v", int: "v", bool: "vb", str: "vs"}


class SenmlCodec:
    """Records of a pack with the same base name and time are one row; a record's name is the field's name."""

    def __init__(self, fields: frozenset[str] | None = None, *, max_rows: int = MAX_ROWS) -> None:
        self._fields = fields
        self._max_rows = max_rows
        self._shapes = Shapes[Shape](lambda shape, captured, tail: compile_shape(shape, fields, captured, tail))

    def decode_untrusted(
        self, payload: bytes, captures: Mapping[str, str], arrival_wall: float, out: list[Row], topic: str = ""
    ) -> int:
        """Implements `Codec`."""
        document = parse_untrusted(payload)
        pack = split(document, self._max_rows)
        resolver = Resolver(self._fields, captures, arrival_wall, topic)
        rows = resolver.rows(pack)
        bad = resolver.bad + repeated_keys_untrusted(payload, document, LABELS.__contains__)
        if len(rows) == 1 and not bad and self._shapes.due():
            shape = shape_of(pack, payload.count(b'":'))
            if shape is not None:
                self._shapes.learn(shape, captures)
        out += rows
        return bad

    def decode_batch_untrusted(
        self, topics: Sequence[str], payloads: Sequence[bytes], captures: Captures, wall: float
    ) -> Decoded:
        """Implements `Codec`."""
        return self._shapes.decode_batch(self, topics, payloads, captures, wall)

    def fuse(self, tail: Tail) -> None:
        """Implements `Fusible`."""
        self._shapes.fuse(tail)

    def encode(self, rows: Sequence[Row]) -> list[bytes]:
        """One RFC 8428 pack per row: source as base name, time as base time, a record per field.

        Fields that SenML has no value for (null, NaN, infinities) are left out; characters that it forbids in a name
        become `_`. Times below 2**28 (1978) would be read as relative to now.
        """
        return list(map(self.encode_row, rows))

    def encode_row(self, row: Row) -> bytes:
        """`encode` for one row."""
        return _encode(_pack(row))


def _pack(row: Row) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for name, value in row.items():
        key = _VALUE_KEYS.get(type(value))
        if key and name not in ("time", "source") and (key != "v" or value - value == 0):
            records.append({"n": legal(name), key: value})
    base = {"bn": f"{legal(row['source'])}:", "bt": row["time"]}
    return [{**base, **records[0]}, *records[1:]] if records else [base]
