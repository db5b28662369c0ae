"""The messages of the membership protocol, and their packed form.

A body is a MessagePack list of messages; a message is a list whose first item is its kind. The first message of a body
may be a probe or an answer, the others are updates that ride along.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, fields
from typing import Any, Final

from agent.membership.members import Address, State
from edgert.core.errors import PayloadError, ProtocolError, show
from edgert.core.ids import GATEWAY_NAME
from edgert.core.packing import pack, unpack_untrusted

MAX_ITEMS: Final = 65_536
"""Most messages of a body or of an exchanged table, and most items of a message."""
MAX_PIECE_BYTES: Final = 1 << 20
"""Most bytes of a piece of an exchanged table, before it is compressed."""
MAX_PIECES: Final = 8
"""Most pieces of a table: 2 kB for each of 4,096 members."""
MAX_COORDINATE: Final = 16
MAX_NUMBER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks `target` for an acknowledgement. An agent of another name does not answer: the address was used again."""

    sequence: int
    target: str


@dataclass(frozen=True, slots=True)
class Ack:
    """Answers a ping; carries the answering agent's coordinate (an empty list: none yet)."""

    sequence: int
    coordinate: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PingRequest:
    """Asks a member to ping `target` and pass on its acknowledgement."""

    sequence: int
    target: str


@dataclass(frozen=True, slots=True)
class Nack:
    """The asked member lives, but `target` did not answer it in time (Lifeguard §IV-A)."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A member is in a state. `witness` is the member that says so by its own observation."""

    name: str
    epoch: int
    incarnation: int
    state: State
    host: str
    port: int
    witness: str

    @property
    def address(self) -> Address:
        return self.host, self.port


@dataclass(frozen=True, slots=True)
class SectionUpdate:
    """One section of the state that member `name` publishes."""

    name: str
    epoch: int
    section: str
    version: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Known:
    """The sender has this version of a member's section; only in an exchange of tables."""

    name: str
    epoch: int
    section: str
    version: int


@dataclass(frozen=True, slots=True)
class NameHeld:
    """The answer to a start of board `name` that is refused: another start holds the name, at this address."""

    name: str
    epoch: int
    host: str
    port: int

    @property
    def address(self) -> Address:
        return self.host, self.port


MembershipMessage = Ping | Ack | PingRequest | Nack | Claim | SectionUpdate | Known | NameHeld
_KINDS: Final[dict[int, type[Any]]] = {
    0: Ping,
    1: Ack,
    2: PingRequest,
    3: Nack,
    4: Claim,
    5: SectionUpdate,
    6: Known,
    7: NameHeld,
}
_NUMBERS: Final = {kind: number for number, kind in _KINDS.items()}
_FIELDS: Final = {kind: tuple(f.name for f in fields(kind)) for kind in _NUMBERS}


def encode(message: MembershipMessage) -> bytes:
    """One message as MessagePack."""
    kind = type(message)
    values = [getattr(message, name) for name in _FIELDS[kind]]
    if kind is Ack:  # the most frequent of all: in less than half the room of a list
        values[-1] = struct.pack(f"<{len(values[-1])}f", *values[-1])
    return pack([_NUMBERS[kind], *values])


def body(parts: list[bytes]) -> bytes:
    """Encoded messages as one body (a MessagePack list)."""
    count = len(parts)
    if count < 16:
        head = bytes((0x90 | count,))
    else:
        head = b"\xdd" + count.to_bytes(4, "big")
    return head + b"".join(parts)


def decode_untrusted(payload: bytes, max_bytes: int = 1_400) -> list[MembershipMessage]:
    """The messages of a body. Raises `ProtocolError` naming the first message that is not as it must be."""
    try:
        items = unpack_untrusted(payload, max_bytes, MAX_ITEMS)
    except PayloadError as error:
        raise ProtocolError(str(error)) from error
    if not isinstance(items, list):
        raise ProtocolError(f"expected a list of messages, got {show(items)}")
    return [_message(item, index) for index, item in enumerate(items)]


def _message(item: object, index: int) -> MembershipMessage:
    kind = item[0] if isinstance(item, list) and item else None
    made = _KINDS.get(kind) if type(kind) is int else None
    if made is None or not isinstance(item, list):
        raise ProtocolError(f"message {index}: expected a list with a kind from 0 to {len(_KINDS) - 1} first")
    check = _CHECKS[made]
    if len(item) - 1 != len(check):
        raise ProtocolError(f"message {index}: expected {len(check)} items after kind {kind}, got {len(item) - 1}")
    try:
        values = [convert(value) for convert, value in zip(check, item[1:], strict=True)]
    except ValueError as error:
        raise ProtocolError(f"message {index}, kind {kind}: {error}") from None
    message: MembershipMessage = made(*values)
    return message


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise ValueError(f"expected a number from 0 to 2**63 - 1, got {show(value)}")
    return value


def _name(value: object) -> str:
    if type(value) is not str or not GATEWAY_NAME.fullmatch(value):
        raise ValueError(f"expected the name of a gateway, got {show(value)}")
    return value


def _host(value: object) -> str:
    if type(value) is not str or not 0 < len(value) <= 255 or not value.isprintable():
        raise ValueError(f"expected a host of 1 to 255 characters, got {show(value)}")
    return value


def _port(value: object) -> int:
    if type(value) is not int or not 0 < value <= 65_535:
        raise ValueError(f"expected a port, got {show(value)}")
    return value


def _state(value: object) -> State:
    if type(value) is not int or not 0 <= value < len(State):
        raise ValueError(f"expected a state from 0 to {len(State) - 1}, got {show(value)}")
    return State(value)


def _payload(value: object) -> bytes:
    if type(value) is not bytes:
        raise ValueError(f"expected bytes, got {show(value)}")
    return value


def coordinate_untrusted(value: object) -> tuple[float, ...]:
    """Finite numbers below 10⁹ in size, at most `MAX_COORDINATE`. Raises `ValueError`."""
    if not isinstance(value, list) or len(value) > MAX_COORDINATE:
        raise ValueError(f"expected a list of at most {MAX_COORDINATE} numbers, got {show(value)}")
    for number in value:
        if type(number) not in (int, float) or not math.isfinite(number) or abs(number) > 1e9:
            raise ValueError(f"expected finite numbers below 10⁹ in size, got {show(number)}")
    return tuple(float(number) for number in value)


def _packed_coordinate(value: object) -> tuple[float, ...]:
    if type(value) is not bytes or len(value) % 4 or len(value) > 4 * MAX_COORDINATE:
        raise ValueError(f"expected at most {MAX_COORDINATE} numbers of 4 bytes, got {show(value)}")
    return coordinate_untrusted(list(struct.unpack(f"<{len(value) // 4}f", value)))


_CHECKS: Final[dict[type[Any], tuple[Any, ...]]] = {
    Ping: (_number, _name),
    Ack: (_number, _packed_coordinate),
    PingRequest: (_number, _name),
    Nack: (_number,),
    Claim: (_name, _number, _number, _state, _host, _port, _name),
    SectionUpdate: (_name, _number, _name, _number, _payload),
    Known: (_name, _number, _name, _number),
    NameHeld: (_name, _number, _host, _port),
}
