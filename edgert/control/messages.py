"""Requests and answers of the control socket: length-prefixed MessagePack frames.

    request   {"id": 7, "verb": "figures", "args": {}}
    answer    {"id": 7, "ok": true, "result": ...}
              {"id": 7, "ok": false, "error": "expected ..., got ..."}

A frame is the length of its body (4 bytes, little-endian) and the body, one MessagePack map. The client chooses the ids
(from 1); answers may come in another order than their requests. An answer with id 0 says why the connection ends.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from edgert.core.errors import EdgertError, PayloadError, show
from edgert.core.packing import MAX_CONTAINERS, MAX_ITEMS, pack, unpack_untrusted

MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024
"""Largest body of a request: a flow's document and its parameters, with room to spare."""
MAX_STATE_BYTES: Final = 64 * 1024 * 1024
"""Largest body of a request to a gateway: it may carry the state of operators that come from other gateways."""
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Largest body of an answer."""
MAX_ERROR_CHARACTERS: Final = 10_000
LAST_ID: Final = 2**63 - 1
VERB: Final = re.compile(r"[a-z][a-z0-9_.-]{0,62}", re.ASCII)
_LENGTH: Final = struct.Struct("<I")


class ControlError(EdgertError):
    """The program at the other end of a control socket could not be reached, or broke off."""


class VerbError(ControlError):
    """The program at the other end refused a request; the text is its own."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request."""

    id: int
    verb: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: `error` is empty where `ok`, else `result` is None."""

    id: int
    ok: bool
    result: Any = None
    error: str = ""


class Splitter:
    """Cuts a stream of bytes from outside into the bodies of frames. It never holds more than one frame of
    `max_bytes` and one chunk."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    @property
    def within(self) -> bool:
        """The stream has stopped within a frame."""
        return bool(self._buffer)

    def feed_untrusted(self, chunk: bytes) -> Iterator[bytes]:
        """The bodies that are whole now. Raises `PayloadError` where a length is 0 or beyond the limit; the stream
        cannot be read any further then."""
        buffer = self._buffer
        buffer += chunk
        at = 0
        try:
            while len(buffer) - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer, at)
                if not 0 < length <= self._max_bytes:
                    raise PayloadError(f"expected a frame of 1 to {self._max_bytes} bytes, got one of {length}")
                start = at + _LENGTH.size
                if len(buffer) - start < length:
                    break
                body = bytes(memoryview(buffer)[start : start + length])
                at = start + length
                yield body
        finally:
            del buffer[:at]


def pack_request(number: int, verb: str, args: Mapping[str, Any], max_bytes: int = MAX_REQUEST_BYTES) -> bytes:
    """A request as it goes over the wire. Raises `ControlError` for one that the other end would not take."""
    return _frame({"id": number, "verb": verb, "args": dict(args)}, max_bytes, f"the request {verb}")


def pack_result(number: int, result: Any, max_bytes: int = MAX_ANSWER_BYTES) -> bytes:
    """The answer to a request that was carried out. Raises `ControlError` where `result` is no plain value, or too
    large."""
    return _frame({"id": number, "ok": True, "result": result}, max_bytes, "the answer")


def pack_error(number: int, error: str) -> bytes:
    """The answer to a request that was not carried out. It always fits."""
    return _frame(
        {"id": number, "ok": False, "error": error[:MAX_ERROR_CHARACTERS] or "no reason was given"},
        MAX_ANSWER_BYTES,
        "the error",
    )


def _frame(document: Mapping[str, Any], max_bytes: int, what: str) -> bytes:
    try:
        body = pack(document)
    except (TypeError, ValueError, RecursionError) as error:
        raise ControlError(f"{what} is not made of plain values: {error}") from error
    if len(body) > max_bytes:
        raise ControlError(f"{what} has {len(body)} bytes, expected at most {max_bytes}")
    return _LENGTH.pack(len(body)) + body


def request_untrusted(body: bytes, max_bytes: int = MAX_REQUEST_BYTES) -> Request:
    """The request in a frame's body. Raises `PayloadError` for anything else."""
    document = _map_untrusted(body, max_bytes, {"id", "verb", "args"}, "a request")
    verb, args = document.get("verb"), document.get("args", {})
    if not isinstance(verb, str) or not VERB.fullmatch(verb):
        raise PayloadError(f"verb: expected a name that matches {VERB.pattern}, got {show(verb)}")
    if not isinstance(args, dict) or not all(isinstance(name, str) for name in args):
        raise PayloadError(f"args: expected a map with strings as keys, got {show(args)}")
    return Request(_id(document), verb, args)


def answer_untrusted(body: bytes, max_bytes: int = MAX_ANSWER_BYTES) -> Answer:
    """The answer in a frame's body. Raises `PayloadError` for anything else."""
    known = {"id", "ok", "result", "error"}
    # the status of a gateway with many flows has many lists and maps, and an answer comes from our own socket
    document = _map_untrusted(body, max_bytes, known, "an answer", max_containers=MAX_ITEMS)
    ok, error = document.get("ok"), document.get("error", "")
    if not isinstance(ok, bool):
        raise PayloadError(f"ok: expected true or false, got {show(ok)}")
    if not isinstance(error, str) or ok == bool(error):
        raise PayloadError(f"error: expected a text where ok is false, and none where it is true, got {show(error)}")
    return Answer(_id(document), ok, document.get("result") if ok else None, error)


def _map_untrusted(
    body: bytes, max_bytes: int, known: set[str], what: str, max_containers: int = MAX_CONTAINERS
) -> dict[Any, Any]:
    document = unpack_untrusted(body, max_bytes, max_containers=max_containers)
    if not isinstance(document, dict):
        raise PayloadError(f"expected {what}, a map, got {show(document)}")
    if unknown := document.keys() - known:
        raise PayloadError(f"expected {what} with {', '.join(sorted(known))}, got {show(sorted(map(repr, unknown)))}")
    return document


def _id(document: Mapping[Any, Any]) -> int:
    number = document.get("id")
    if type(number) is not int or not 0 <= number <= LAST_ID:
        raise PayloadError(f"id: expected an integer from 0 to 2**63 - 1, got {show(number)}")
    return number
