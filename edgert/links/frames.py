"""The frames of a link: length-prefixed MessagePack lists that begin with the kind of the frame.

Between a gateway daemon and its slots, and among slots; all of them one program of one version, so the bytes are our
own. A flow that runs in slots has a `run`, a number that is never used again: what belongs to an earlier life of the
flow is known by it and dropped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

from edgert.core.batch import Batch, RawBatch
from edgert.core.errors import EdgertError, PayloadError
from edgert.core.packing import pack, unpack
from edgert.core.rows import pack_rows, unpack_rows

HELLO: Final = "hello"
"""daemon → slot: settings of the pool, the slot's number."""
PEER: Final = "peer"
"""daemon → slot, with a socket: the link to another slot."""
BUILD: Final = "build"
"""daemon → slot: a run, its document, where its instances are, and the checkpoint that it begins with."""
DROP: Final = "drop"
"""daemon → slot: a run has ended."""
DATA: Final = "data"
"""daemon → slot, slot → slot: a batch for an input of an instance."""
STANDING: Final = "standing"
"""slot → slot: what a copy of a source knows of its devices; see `edgert.operators.sources.device_watermarks`."""
TAKEN: Final = "taken"
"""slot → slot: so many bytes of what it has sent to an instance stand in that one's queue now."""
FULL: Final = "full"
"""slot → slot: the queue of an instance is over its budget; send it no more."""
ROOM: Final = "room"
"""slot → slot: it is not any more."""
MARK: Final = "mark"
"""daemon → slot: stop a run at a batch boundary and give what changed, and all state if asked for; all DATA before it
belongs to that."""
MARKER: Final = "marker"
"""slot → slot: all DATA of a run before this belongs to the checkpoint that is being made."""
ABORT: Final = "abort"
"""daemon → slot: that checkpoint will not come; go on."""
CAPTURED: Final = "captured"
"""slot → daemon: what a run has changed, what waits in its queues, what it has counted and, if asked for, all of its
state; or that it came to no boundary in time."""
RESULTS: Final = "results"
"""slot → daemon: what an at-least-once flow is to ship, ahead of its checkpoint."""
MODEL: Final = "model"
"""daemon → slot: a model for an operator."""
WEIGH: Final = "weigh"
"""daemon → slot: weights of instances of a run."""
MESSAGES: Final = "messages"
"""slot → daemon: messages to publish."""
REPORT: Final = "report"
"""slot → daemon: once a second, how the process is, what stages have done, and raw figures of instances (None where
the daemon has not asked for them lately)."""
FIGURES: Final = "figures"
"""daemon → slot: raw figures go with the reports for so many seconds; the next report comes at once."""
FAILED: Final = "failed"
"""slot → daemon: a run could not be built, and why."""
SETTINGS: Final = "settings"
"""daemon → slot: settings that may change while running."""

MAX_FRAME: Final = 512 * 1024 * 1024
"""A greater one is never sent: the stream is damaged. The greatest message of MQTT (256 MiB) fits, with what one read
brings beside it."""
_LENGTH: Final = struct.Struct("<I")


class TooLarge(EdgertError):
    """Raised for a frame that is longer than any receiver takes."""


def frame(*parts: Any) -> bytes:
    """One frame as it goes over the wire. Raises `TooLarge`."""
    body = pack(parts)
    if len(body) > MAX_FRAME:
        raise TooLarge(f"expected at most {MAX_FRAME} bytes for a frame of the kind {parts[0]}, got {len(body)}")
    return _LENGTH.pack(len(body)) + body


class FrameSplitter:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[list[Any]]:
        """The frames that are whole now. Raises `PayloadError` where the stream is no stream of frames."""
        buffer = self._buffer
        buffer += chunk
        at = 0
        try:
            while len(buffer) - at >= 4:
                (length,) = _LENGTH.unpack_from(buffer, at)
                if length > MAX_FRAME:
                    raise PayloadError(f"expected a frame of at most {MAX_FRAME} bytes, got one of {length}")
                if len(buffer) - at - 4 < length:
                    break
                body = bytes(memoryview(buffer)[at + 4 : at + 4 + length])
                at += 4 + length
                yield unpack(body)
        finally:
            del buffer[:at]


def pack_batch(batch: Batch | RawBatch) -> list[Any]:
    """A batch in plain values. Monotonic times go as they are: all processes of a board share that clock."""
    if isinstance(batch, RawBatch):
        return ["raw", batch.size, batch.arrival, batch.wall, batch.topics, batch.payloads, batch.owed]
    return ["rows", batch.size, batch.arrival, batch.watermark, pack_rows(batch.rows)]


def unpack_batch(packed: Sequence[Any]) -> Batch | RawBatch:
    """The batch that `pack_batch` packed. Raises ValueError, TypeError or IndexError for anything else."""
    kind, size, arrival, moment, *rest = packed
    if kind == "raw":
        return RawBatch(rest[0], rest[1], arrival, moment, size, rest[2])
    return Batch(unpack_rows(rest[0]), arrival, moment, size)
