"""The messages between two gateways, and their bytes: length-prefixed MessagePack lists that begin with their kind.

    u32 length (little endian) │ MessagePack [kind, field, ...]

The table of kinds is in `docs/internals/links.md`. Everything that comes from a peer goes through
`LinkDecoder.feed_untrusted`, whose one error is `ProtocolError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from edgert.core.errors import PayloadError, ProtocolError, show
from edgert.core.ids import FLOW_NAME, GATEWAY_NAME
from edgert.core.packing import pack, unpack_untrusted
from edgert.core.plain import is_integer

VERSION: Final = 1
MAX_BODY: Final = 16 * 1024 * 1024
"""Most bytes of one batch's body; `Sender` refuses a longer one, since no receiver would take it."""
MAX_FRAME: Final = MAX_BODY + 1024
MAX_HELLO: Final = 1024
"""Most bytes of a frame before the peer has said who it is."""
MAX_TEXT: Final = 500
"""Most characters of the reason for a refusal."""
_MAX_FIELDS: Final = 8
_LENGTH: Final = struct.Struct("<I")
_UINT63: Final = 2**63 - 1
_MAX_CHANNEL: Final = 2**32 - 1


class Number(NamedTuple):
    """The number of a batch in its stream; it never changes. Numbers are ordered; the first of an epoch is 1."""

    epoch: int
    sequence: int

    def follows(self, other: Number) -> bool:
        """No number lies between `other` and this one: it is the next of the epoch, or the first of a later one."""
        if self.epoch == other.epoch:
            return self.sequence == other.sequence + 1
        return self.epoch > other.epoch and self.sequence == 1

    def __str__(self) -> str:
        return f"{self.sequence} of epoch {self.epoch}"


NOTHING: Final = Number(0, 0)
"""The position before the first batch of a stream."""


class Hello(NamedTuple):
    """The first message of each side: the protocol's version, the sender's fleet and gateway."""

    version: int
    fleet: str
    gateway: str


class Refuse(NamedTuple):
    """The connection is closed, and why. For the other side's log."""

    text: str


class Resume(NamedTuple):
    """receiver → sender: send `flow` on `channel` from behind `after`. What is up to `committed` may be deleted."""

    channel: int
    flow: str
    committed: Number
    after: Number
    credit: int
    """Bytes that may be sent on the channel; `Credit` raises it."""


class Skip(NamedTuple):
    """sender → receiver: the next batch has the number `first`; what should stand before it is gone for good."""

    channel: int
    first: Number


class Data(NamedTuple):
    """sender → receiver: a batch."""

    channel: int
    number: Number
    body: bytes


class Ack(NamedTuple):
    """receiver → sender: everything up to `number` is committed."""

    channel: int
    number: Number


class Credit(NamedTuple):
    """receiver → sender: so many bytes may be sent on the channel, counted from its beginning."""

    channel: int
    total: int


class Close(NamedTuple):
    """receiver → sender: send no more on the channel; what is not acknowledged stays where it is."""

    channel: int


class Ping(NamedTuple):
    """Asks the peer for a sign of life."""

    token: int


class Pong(NamedTuple):
    """The answer to a `Ping`, with its token."""

    token: int


LinkMessage = Hello | Refuse | Resume | Skip | Data | Ack | Credit | Close | Ping | Pong


def encode(message: LinkMessage) -> bytes:
    """One frame. Raises ValueError where it is longer than any receiver takes."""
    fields: list[Any] = [_KINDS[type(message)]]
    for value in message:
        if type(value) is Number:
            fields += value
        else:
            fields.append(value)
    packed = pack(fields)
    if len(packed) > MAX_FRAME:
        raise ValueError(f"expected a frame of at most {MAX_FRAME} bytes, got {len(packed)}")
    return _LENGTH.pack(len(packed)) + packed


class LinkDecoder:
    """Cuts a peer's bytes into messages. It holds one unfinished frame at most."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        """`max_frame` may be raised later: a peer that has not said who it is gets less room."""
        self.max_frame = max_frame
        self._buffer = bytearray()

    def feed_untrusted(self, chunk: bytes, most: int | None = None) -> list[LinkMessage]:
        """The messages that are whole now, at most `most`; the others come with the next call. Raises `ProtocolError`
        where the bytes are no message of this protocol; the decoder is of no use then."""
        buffer = self._buffer
        buffer += chunk
        at = 0
        messages: list[LinkMessage] = []
        while len(buffer) - at >= _LENGTH.size and (most is None or len(messages) < most):
            (length,) = _LENGTH.unpack_from(buffer, at)
            if length > self.max_frame:
                raise ProtocolError(f"expected a frame of at most {self.max_frame} bytes, got one of {length}")
            end = at + _LENGTH.size + length
            if len(buffer) < end:
                break
            messages.append(decode_untrusted(bytes(memoryview(buffer)[at + _LENGTH.size : end])))
            at = end
        del buffer[:at]
        return messages

    def rest(self) -> bytes:
        """Takes out what has come and was not given out yet."""
        rest, self._buffer = bytes(self._buffer), bytearray()
        return rest


def decode_untrusted(packed: bytes) -> LinkMessage:
    """The message in a frame without its length. Raises `ProtocolError`."""
    try:
        fields = unpack_untrusted(packed, MAX_FRAME, _MAX_FIELDS)
    except PayloadError as error:
        raise ProtocolError(f"expected a link message: {error}") from error
    if not isinstance(fields, list) or not fields:
        raise ProtocolError(f"expected a list with a kind as link message, got {show(fields)}")
    kind, *rest = fields
    shape = _SHAPES.get(kind) if is_integer(kind) else None
    if shape is None:
        raise ProtocolError(f"expected the kind of a link message (0 to {len(_SHAPES) - 1}), got {show(kind)}")
    make, checks = shape
    if len(rest) != len(checks):
        raise ProtocolError(f"expected {len(checks)} fields in a {make.__name__}, got {len(rest)}")
    for number, (value, (what, fits)) in enumerate(zip(rest, checks, strict=True), 1):
        if not fits(value):
            raise ProtocolError(f"expected {what} as field {number} of a {make.__name__}, got {show(value)}")
    return _made(make, rest)


def _made(make: type[Any], rest: list[Any]) -> LinkMessage:
    if make is Resume:
        channel, flow, *numbers, credit = rest
        return Resume(channel, flow, Number(*numbers[:2]), Number(*numbers[2:]), credit)
    if make is Data:
        channel, epoch, sequence, body = rest
        return Data(channel, Number(epoch, sequence), body)
    if make is Skip or make is Ack:
        channel, epoch, sequence = rest
        message: LinkMessage = make(channel, Number(epoch, sequence))
        return message
    plain: LinkMessage = make(*rest)
    return plain


Check = tuple[str, Callable[[Any], bool]]


def _between(low: int, high: int) -> Check:
    return f"an integer from {low} to {high}", lambda value: is_integer(value) and low <= value <= high


def _name(pattern: Any, what: str) -> Check:
    return what, lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


_CHANNEL: Final = _between(1, _MAX_CHANNEL)
_UINT: Final = _between(0, _UINT63)
_NAME: Final = _name(GATEWAY_NAME, "a name of 1 to 63 letters, digits, '_', '.' or '-'")
_FLOW: Final = _name(FLOW_NAME, "the name of a flow")
_TEXT: Final = (
    f"text of at most {MAX_TEXT} characters",
    lambda value: isinstance(value, str) and len(value) <= MAX_TEXT,
)
_BODY: Final = (
    f"at most {MAX_BODY} bytes",
    lambda value: isinstance(value, bytes) and len(value) <= MAX_BODY,
)
_SHAPES: Final[dict[int, tuple[type[Any], tuple[Check, ...]]]] = {
    0: (Hello, (_UINT, _NAME, _NAME)),
    1: (Refuse, (_TEXT,)),
    2: (Resume, (_CHANNEL, _FLOW, _UINT, _UINT, _UINT, _UINT, _UINT)),
    3: (Skip, (_CHANNEL, _UINT, _UINT)),
    4: (Data, (_CHANNEL, _UINT, _UINT, _BODY)),
    5: (Ack, (_CHANNEL, _UINT, _UINT)),
    6: (Credit, (_CHANNEL, _UINT)),
    7: (Close, (_CHANNEL,)),
    8: (Ping, (_UINT,)),
    9: (Pong, (_UINT,)),
    # 10 is kept for unnumbered batches of at-least-once flows.
}
_KINDS: Final[dict[type[Any], int]] = {make: kind for kind, (make, _) in _SHAPES.items()}
