"""MessagePack, the packed form of every wire and of the database.

`pack` and `unpack` are for our own bytes and fast; `unpack_untrusted` is for bytes from outside and has limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import msgpack
import msgspec

from edgert.core.errors import PayloadError

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_ITEMS: Final = 1_000_000
"""Most elements of one list or map. A header of five bytes may claim 2**32: the claim alone must cost nothing."""
MAX_CONTAINERS: Final = 100_000
"""Most lists, maps and keys of maps in one value. An empty map is one byte packed and 64 bytes in memory."""

_encode = msgspec.msgpack.Encoder().encode


def pack(value: Any) -> bytes:
    """Any plain value (None, bool, int, float, str, bytes, list, tuple, dict) as MessagePack bytes.

    An integer beyond 64 bits, which MessagePack lacks, becomes a float (beyond all floats: infinity): where one came
    through all checks, a checkpoint must not fail for ever.
    """
    try:
        return _encode(value)
    except OverflowError:
        return _encode(within_64_bits(value))


def within_64_bits(value: Any) -> Any:
    """A plain value with floats in place of integers that MessagePack lacks."""
    if isinstance(value, dict):
        return {within_64_bits(key): within_64_bits(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [within_64_bits(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value) if value.bit_length() < 1024 else math.inf if value > 0 else -math.inf
    return value


def unpack(payload: bytes) -> Any:
    """The value in bytes that this program packed itself. Raises `PayloadError` if they are damaged."""
    try:
        return msgspec.msgpack.decode(payload)
    # Bad UTF-8 and too deep nesting are not among msgspec's own errors.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadError(f"expected MessagePack, got {len(payload)} bytes: {error}") from error


def unpack_untrusted(
    payload: bytes | memoryview, max_bytes: int = MAX_BYTES, max_items: int = MAX_ITEMS,
    max_containers: int = MAX_CONTAINERS, max_elements: int = MAX_BYTES,
) -> Any:  # fmt: skip
    """The one value in `payload`: None, bool, int, float, str, bytes, list, dict; no extension types.

    Raises `PayloadError` when it is larger than `max_bytes`, has a list or map of more than `max_items` elements, more
    than `max_containers` lists, maps and keys or more than `max_elements` elements in all, is nested beyond what the
    unpacker bears, has a list or map as a key, is cut off or is followed by something else.
    """
    if len(payload) > max_bytes:
        raise PayloadError(f"expected at most {max_bytes} bytes of MessagePack, got {len(payload)}")
    # an element takes a byte; a list is made as long as its header claims
    max_items = min(max_items, max_elements, len(payload))
    # a list, a map and a key take a byte too, so nothing has to be counted in most payloads
    few = len(payload) <= min(max_containers, max_elements)
    count = None if few else _count(max_containers, max_elements)
    try:
        return msgpack.unpackb(
            payload,
            raw=False,
            strict_map_key=False,
            max_str_len=max_bytes,
            max_bin_len=max_bytes,
            max_array_len=max_items,
            max_map_len=min(max_items, max_containers),
            max_ext_len=0,
            list_hook=count,
            object_hook=count,
        )
    # The unpacker's errors: ValueError and its kind (format, depth, limits, UTF-8, rest), TypeError (a list as key).
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise PayloadError(
            f"expected MessagePack, got {len(payload)} bytes: {error or type(error).__name__}"
        ) from error


def _count(most: int, most_elements: int) -> Callable[[Any], Any]:
    """A hook for each list and map that is complete: it raises `ValueError` at the first one beyond `most`, or with
    elements beyond `most_elements`."""
    left, elements = most, most_elements

    def count(container: Any) -> Any:
        nonlocal left, elements
        left -= 1 if type(container) is list else 1 + len(container)
        elements -= len(container)
        if left < 0:
            raise ValueError(f"expected at most {most} lists, maps and keys in it, got more")
        if elements < 0:
            raise ValueError(f"expected at most {most_elements} elements in its lists and maps, got more")
        return container

    return count
