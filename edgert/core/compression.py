"""Payloads that may be compressed (zstd): which they are follows from their first bytes.

A packed map never begins as a zstd frame does, so a receiver takes both. A frame says how large its content is: that
is looked at before a byte of it is made.
"""

from __future__ import annotations

from typing import Final

import zstandard

from edgert.core.errors import PayloadError

_LEVEL: Final = 3
MAX_EXPANDED_BYTES: Final = 8 << 20
"""Most bytes of content of a compressed payload. What is larger travels as it is: a result batch has some 100 kB."""


def compressed(payload: bytes) -> bytes:
    """`payload` as one zstd frame where that is smaller, else as it is."""
    if len(payload) > MAX_EXPANDED_BYTES:
        return payload
    packed = zstandard.ZstdCompressor(_LEVEL, write_checksum=True).compress(payload)
    return packed if len(packed) < len(payload) else payload


def is_compressed(payload: bytes) -> bool:
    return payload.startswith(zstandard.FRAME_HEADER)


def expanded_size(payload: bytes, most: int = MAX_EXPANDED_BYTES) -> int:
    """Bytes of the content, as a compressed payload says. Raises `PayloadError` where it does not say, or more than
    `most`."""
    if not is_compressed(payload):
        return len(payload)
    try:
        size = zstandard.get_frame_parameters(payload).content_size
    except zstandard.ZstdError as error:
        raise PayloadError(f"expected a zstd frame, got {len(payload)} bytes: {error}") from error
    if size > most:
        told = "no size" if size == zstandard.CONTENTSIZE_UNKNOWN else f"{size} bytes"
        raise PayloadError(f"expected a zstd frame of at most {most} bytes of content, got {told}")
    return int(size)


def expanded_untrusted(payload: bytes, most: int = MAX_EXPANDED_BYTES) -> bytes:
    """The content of a payload from outside. Raises `PayloadError` for a frame that is damaged or has too much in it;
    it never makes more than `most` bytes."""
    size = expanded_size(payload, most)
    if not is_compressed(payload):
        return payload
    try:
        decompressor = zstandard.ZstdDecompressor(max_window_size=2 * most)
        content = decompressor.decompress(payload, max_output_size=max(size, 1), allow_extra_data=False)
    except (zstandard.ZstdError, ValueError, MemoryError) as error:
        raise PayloadError(f"expected a zstd frame, got {len(payload)} bytes: {error}") from error
    if len(content) != size:
        raise PayloadError(f"expected a zstd frame of {size} bytes of content, as it says, got {len(content)}")
    return content
