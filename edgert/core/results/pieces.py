"""A result that is larger than the broker's limit travels in pieces: one MQTT message each, put together on arrival.

The number of the result stands in `of`, not where other results have theirs: a collector that does not know pieces
refuses them, and passes no number that it has not landed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from edgert.core.errors import PayloadError, show
from edgert.core.packing import pack
from edgert.core.plain import is_integer

MOST_PIECES: Final = 65_535
LEAST_DATA: Final = 128
"""Bytes of a result in one piece at least: below, a broker's limit is taken for an error in its settings."""
PACKET_BYTES: Final = 16
"""Most bytes of an MQTT PUBLISH at QoS 1 without properties, beside topic and payload."""
_HEAD_BYTES: Final = 96
"""Most bytes of a piece beside the names and the data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    gateway: str
    flow: str
    of: tuple[int, int, int]
    """(epoch, stream, sequence) of the result."""
    at: int
    """Number of this piece, from 0."""
    pieces: int
    data: bytes


def room(limit: int, topic: str, gateway: str, flow: str) -> int:
    """Bytes of a result in one piece where the broker takes packets of `limit` bytes; less than `LEAST_DATA`: none."""
    return limit - PACKET_BYTES - len(topic.encode()) - _HEAD_BYTES - len(gateway.encode()) - len(flow.encode())


def cut(payload: bytes, size: int, gateway: str, flow: str, of: tuple[int, int, int]) -> Iterator[bytes]:
    """Payloads of the messages that carry a result, `size` bytes of it each. `size` must be positive."""
    count = -(-len(payload) // size)
    for at in range(count):
        data = payload[at * size : (at + 1) * size]
        head = {"v": 1, "gateway": gateway, "flow": flow, "kind": "piece"}
        yield pack({**head, "of": list(of), "at": at, "pieces": count, "data": data})


def piece_untrusted(plain: Mapping[str, Any], gateway: str, flow: str) -> Piece:
    """Raises `PayloadError`."""
    of, at, pieces, data = (plain.get(name) for name in ("of", "at", "pieces", "data"))
    if not (isinstance(of, list) and len(of) == 3 and all(is_integer(n) and n >= 0 for n in of)):
        raise PayloadError(f"of: expected [epoch, stream, sequence], got {show(of)}")
    if not (is_integer(pieces) and is_integer(at) and 0 <= at < pieces <= MOST_PIECES):
        raise PayloadError(f"at, pieces: expected 0 <= at < pieces <= {MOST_PIECES}, got {show(at)}, {show(pieces)}")
    if not isinstance(data, bytes) or not data:
        raise PayloadError(f"data: expected bytes, got {show(data)}")
    return Piece(gateway=gateway, flow=flow, of=(of[0], of[1], of[2]), at=at, pieces=pieces, data=data)
