"""The packed form of a flow's state and queues: MessagePack, rows as lists under one header of names, zstd with a
checksum. It is stored in the database and sent over links; a change of plan carries it between gateways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import zstandard

from edgert.core.batch import Batch, RawBatch
from edgert.core.errors import DamagedError, PayloadError, show
from edgert.core.packing import pack, unpack
from edgert.core.rows import pack_rows, unpack_rows
from edgert.runtime.instance.queue import Entry

_LEVEL = 3
_PARTS = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])


def pack_state(deltas: Mapping[str, Any]) -> bytes:
    """Deltas or snapshots by instance."""
    return zstandard.ZstdCompressor(_LEVEL, write_checksum=True).compress(pack(deltas))


def unpack_state(blob: bytes) -> dict[str, Any]:
    """Raises `DamagedError` for a blob that is damaged."""
    try:
        state = unpack(zstandard.ZstdDecompressor().decompress(blob, allow_extra_data=False))
    except (zstandard.ZstdError, PayloadError, MemoryError, ValueError, TypeError) as error:
        raise DamagedError(f"expected a flow's state, got {len(blob)} damaged bytes: {error}") from error
    if not isinstance(state, dict):
        raise DamagedError(f"expected a flow's state by instance, got {show(state)}")
    return state


def unpack_parts(blob: bytes) -> dict[str, msgspec.Raw]:
    """Instance → its part, still packed: all of a large state at once would take several times its memory. Raises
    `DamagedError` for a blob that is damaged."""
    try:
        return _PARTS.decode(zstandard.ZstdDecompressor().decompress(blob, allow_extra_data=False))
    except (zstandard.ZstdError, msgspec.MsgspecError, UnicodeDecodeError, MemoryError, ValueError) as error:
        raise DamagedError(f"expected a flow's state by instance, got {len(blob)} damaged bytes: {error}") from error


def pack_queues(queues: Mapping[str, Sequence[Entry]]) -> bytes:
    """The batches of every queue by instance, empty queues left out; empty bytes when all are."""
    packed = {name: [_pack_entry(e) for e in entries] for name, entries in queues.items() if entries}
    return pack_state(packed) if packed else b""


def unpack_queues(blob: bytes, monotonic: float) -> dict[str, list[Entry]]:
    """The entries by instance; `monotonic` (now, seconds) becomes their arrival, since the old clock means nothing."""
    if not blob:
        return {}
    packed = unpack_state(blob)
    try:
        return {name: [_unpack_entry(e, monotonic) for e in entries] for name, entries in packed.items()}
    except (ValueError, TypeError, IndexError) as error:
        raise DamagedError(f"expected queues as they were packed, got {show(packed)}: {error}") from error


def join_queues(blobs: Sequence[bytes]) -> bytes:
    """Several packed queues as one: what waits in one stands before what waits in the next."""
    filled = [blob for blob in blobs if blob]
    if len(filled) < 2:
        return filled[0] if filled else b""
    joined: dict[str, list[Any]] = {}
    for blob in filled:
        for name, entries in unpack_state(blob).items():
            joined.setdefault(name, []).extend(entries)
    return pack_state(joined)


def _pack_entry(entry: Entry) -> list[Any]:
    batch = entry.batch
    if isinstance(batch, RawBatch):
        return [entry.source, "raw", batch.size, batch.wall, batch.topics, batch.payloads, entry.producer, batch.owed]
    return [entry.source, "rows", batch.size, batch.watermark, pack_rows(batch.rows), entry.producer]


def _unpack_entry(packed: Sequence[Any], monotonic: float) -> Entry:
    source, kind, size, moment, *rest = packed
    if kind == "raw":
        topics, payloads, producer, owed = rest
        raw = RawBatch(topics, payloads, monotonic, moment, size, owed=owed)
        return Entry(source, raw, monotonic, producer=producer)
    rows, producer = rest
    return Entry(source, Batch(unpack_rows(rows), monotonic, moment, size), monotonic, producer=producer)
