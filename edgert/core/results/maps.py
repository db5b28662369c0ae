"""The maps of the results' wire format, from outside: decoded without making more than a result may hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypedDict

import msgspec

from edgert.core.errors import PayloadError, show
from edgert.core.packing import MAX_CONTAINERS, unpack_untrusted

VERSION: Final = 1
MOST_ROWS: Final = 10_000
"""Rows of one batch; gateways send a tenth of it."""
_Values = Annotated[list[bool | int | float | str | None], msgspec.Meta(min_length=3)]


class _PlainNumber(TypedDict):
    v: int
    gateway: str
    flow: str
    epoch: int
    stream: int
    sequence: int
    flow_version: int


class _PlainRows(_PlainNumber):
    kind: Literal["rows"]
    columns: list[str]
    rows: Annotated[list[_Values], msgspec.Meta(max_length=MOST_ROWS)]


_decode_rows: Final = msgspec.msgpack.Decoder(_PlainRows).decode
_decode_number: Final = msgspec.msgpack.Decoder(_PlainNumber).decode
"""Makes nothing of what else the map holds."""
_UNDECODED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LEAST_BYTES: Final = 5
"""Least bytes of a result for each list, map and key in it."""


def result_map_untrusted(content: bytes) -> tuple[Mapping[str, Any], PayloadError | None]:
    """The map, or its number alone and why the rest is refused.

    Rows of numbers and texts, the most common result, are decoded by their shape: no other list or map is made. In all
    other results (of sketches, too) lists and maps are counted.
    """
    try:
        return _of_version(_decode_rows(content), "a result"), None
    except _UNDECODED:
        pass
    try:
        return map_untrusted(content, "a result", 50 + len(content) // _LEAST_BYTES), None
    except PayloadError as fault:
        try:
            return _of_version(_decode_number(content), "a result"), fault
        except _UNDECODED:
            raise fault from None


def map_untrusted(payload: bytes, what: str, max_containers: int = MAX_CONTAINERS) -> Mapping[str, Any]:
    """`what`: for the error. Raises `PayloadError`."""
    plain = unpack_untrusted(payload, max_containers=min(max_containers, MAX_CONTAINERS))
    if not isinstance(plain, dict):
        raise PayloadError(f"expected {what} as a map, got {show(plain)}")
    return _of_version(plain, what)


def _of_version(plain: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    if plain.get("v") != VERSION:
        raise PayloadError(f"v: expected {VERSION} ({what} of this format), got {show(plain.get('v'))}")
    return plain
