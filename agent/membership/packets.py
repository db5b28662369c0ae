"""Packets between agents: encrypted, authenticated, and taken once.

    packet      = version (1 byte) · key id (4) · nonce (12) · ciphertext · tag (16)
    plain text  = epoch (8) · counter (8) · length of name (1) · name of the sender · body

A packet opens only where its sender meant it to; the associated data, which are not sent, say so:

    over UDP    version, fleet, receiver and the receiver's epoch: not at another board, nor after its restart. Each
                sender counts its packets; the receiver takes each number of the newest epoch once.
    over TCP    version, fleet, receiver, place in the exchange, and the 16 random bytes with which the answering side
                answers the first frame, the hello: in no other connection. The hello asks for nothing but them, and is
                taken once: one for a start of the receiver as a packet over UDP, one for an address by `HelloMemory`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from agent.membership.files import MAX_SENDERS, HelloMemory
from agent.membership.keys import ID_BYTES, NONCE_BYTES, TAG_BYTES, KeyRing
from agent.membership.members import Peer
from edgert.core.errors import EdgertError
from edgert.core.ids import GATEWAY_NAME
from edgert.core.packing import pack

VERSION: Final = 1
MAX_DATAGRAM: Final = 1_400
"""Bytes of a sealed UDP packet, at most: below the smallest usual path MTU, so that it is never fragmented."""
MAX_FRAME: Final = 1 << 24
"""Bytes of a sealed message over TCP, at most: state of operators that move is the greatest. The receiver reads so much
only after a first, small one of the same connection opened."""
WINDOW: Final = 1_024
"""Packets of a sender may arrive in another order within so many."""
VIEWED_BYTES: Final = 1 << 16
"""A greater body is a view of the opened packet: a copy would take as much memory again."""
GREETING_BYTES: Final = 16
ANYBODY: Final = ""
"""Receiver of a frame whose sender knows an address, and not who is there: a seed."""
_HEAD: Final = struct.Struct("<QQB")
_LEAST: Final = 1 + ID_BYTES + NONCE_BYTES + TAG_BYTES + _HEAD.size

FramePart = Literal["hello", "head", "body", "answer head", "answer body"]
Reason = Literal[
    "too large",
    "truncated",
    "version",
    "unknown key",
    "bad tag",
    "malformed",
    "revoked",
    "replay",
    "too many senders",
    "no request",
]
"""`bad tag`: changed, or made for another fleet, receiver, start of the receiver or connection. `no request`: a
connection whose first frame did not come in time."""


class Dropped(EdgertError):
    """A packet was not taken; `reason` is what drops are counted by."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"a packet was dropped: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Opened:
    """A packet that a holder of the fleet key sealed for this agent, and that came for the first time."""

    sender: str
    epoch: int
    counter: int
    body: bytes | memoryview
    to: str
    """The receiver that its sender meant: this agent, or `ANYBODY`."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The place of a packet over TCP."""

    greeting: bytes
    """The bytes with which the answering side greeted the connection; of a hello, its receiver's epoch or address."""
    to: str
    """Name of the receiver."""
    part: FramePart


def hello_to(to: Peer) -> Frame:
    """The hello for one start of a board."""
    return Frame(pack(to.epoch), to.name, "hello")


def hello_at(address: tuple[Any, ...] | None) -> Frame:
    """The hello for the board at a socket's address, of which no start is known. Raises `ConnectionError` without."""
    if address is None:
        raise ConnectionError("the connection is closed")
    host = ipaddress.ip_address(address[0].partition("%")[0])
    return Frame(pack([(getattr(host, "ipv4_mapped", None) or host).packed, address[1]]), ANYBODY, "hello")


class ReplayWindow:
    """Which counters of one sender have come: those of its newest epoch, the last `WINDOW` of them."""

    __slots__ = ("_bits", "_epoch", "_highest")

    def __init__(self, epoch: int, highest: int = -1) -> None:
        """All counters up to `highest` have come."""
        self._epoch = epoch
        self._highest = highest
        self._bits = (1 << WINDOW) - 1

    def accept(self, epoch: int, counter: int) -> bool:
        """Take a packet's number: False for one that came before, or may have."""
        if epoch < self._epoch:
            return False
        if epoch > self._epoch:
            self._epoch, self._highest, self._bits = epoch, -1, 0
        if counter > self._highest:
            ahead = counter - self._highest
            self._bits = (self._bits << ahead if ahead < WINDOW else 0) & ((1 << WINDOW) - 1) | 1
            self._highest = counter
            return True
        bit = 1 << (self._highest - counter)
        if self._highest - counter >= WINDOW or self._bits & bit:
            return False
        self._bits |= bit
        return True


class Sealer:
    """Seals our packets and opens those of others. `random_bytes(n)` gives n bytes that cannot be predicted."""

    def __init__(
        self, name: str, fleet: str, epoch: int, ring: KeyRing, random_bytes: Callable[[int], bytes],
        hellos: HelloMemory | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.epoch = epoch
        self.ring = ring
        """May be replaced at any time: keys rotate while the agent runs."""
        self.revoked: frozenset[str] = frozenset()
        """Boards that are refused, although they may hold a key."""
        self.drops: Counter[str] = Counter()
        """Packets that were not taken, by reason."""
        self._fleet = fleet
        self._random_bytes = random_bytes
        self._counter = 0
        self.is_member: Callable[[str], bool] = lambda name: True
        """False of a board that is forgotten: its window makes way where there are too many."""
        self.hellos = hellos or HelloMemory()
        self._windows: dict[str, ReplayWindow] = {}

    def seal(self, body: bytes, to: Peer) -> bytes:
        """A UDP packet for one start of one board. Raises `ValueError` for a body that makes it too large."""
        return self._seal(body, self._of_datagram(to.name, to.epoch), MAX_DATAGRAM)

    def open_untrusted(self, packet: bytes) -> Opened:
        """Raises `Dropped`, and counts it, unless the UDP packet is new and a member of the fleet sealed it for this
        start of this agent."""
        with self._counting():
            opened = self._open(packet, MAX_DATAGRAM, {self._of_datagram(self.name, self.epoch): self.name})
            self._accept(opened)
            return opened

    def seal_frame(self, body: bytes, frame: Frame) -> bytes:
        """A packet over TCP. Raises `ValueError` for a body that makes it too large."""
        return self._seal(body, self._of_frame(frame), MAX_FRAME)

    def open_frame_untrusted(self, packet: bytes, *frames: Frame) -> Opened:
        """Raises `Dropped`, and counts it, unless a member of the fleet sealed the packet for one of these places. As
        each place has one packet, it is new where the greeting of its connection is; a hello is taken once."""
        with self._counting():
            opened = self._open(packet, MAX_FRAME, {self._of_frame(frame): frame.to for frame in frames})
            if any(frame.part == "hello" for frame in frames):
                self._accept(opened)
            return opened

    def new_token(self) -> str:
        """A token that ties an answer to its request."""
        return self._random_bytes(12).hex()

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        try:
            yield
        except Dropped as dropped:
            self.drops[dropped.reason] += 1
            raise

    def _seal(self, body: bytes, context: bytes, limit: int) -> bytes:
        self._counter += 1
        name = self.name.encode()
        plain = _HEAD.pack(self.epoch, self._counter, len(name)) + name + body
        packet = bytes((VERSION,)) + self.ring.seal(plain, context, self._random_bytes(NONCE_BYTES))
        if len(packet) > limit:
            raise ValueError(f"expected a packet of at most {limit} bytes, got {len(packet)}")
        return packet

    def _open(self, packet: bytes, limit: int, contexts: Mapping[bytes, str]) -> Opened:
        """`contexts`: associated data -> receiver."""
        if len(packet) > limit:
            raise Dropped("too large")
        if len(packet) < _LEAST:
            raise Dropped("truncated")
        if packet[0] != VERSION:
            raise Dropped("version")
        sealed = memoryview(packet)[1:]
        if not self.ring.knows(sealed):
            raise Dropped("unknown key")
        opened = ((to, self.ring.open_untrusted(sealed, context)) for context, to in contexts.items())
        to, plain = next(((to, plain) for to, plain in opened if plain is not None), ("", b""))
        if not plain:
            raise Dropped("bad tag")
        epoch, counter, length = _HEAD.unpack_from(plain)
        end = _HEAD.size + length
        name = plain[_HEAD.size : end].decode("ascii", "replace")
        if end > len(plain) or not GATEWAY_NAME.fullmatch(name) or epoch >= 1 << 63:
            raise Dropped("malformed")
        if name in self.revoked:
            raise Dropped("revoked")
        body = memoryview(plain)[end:]
        return Opened(name, epoch, counter, body if len(body) > VIEWED_BYTES else bytes(body), to)

    def _accept(self, opened: Opened) -> None:
        window = self._windows.get(opened.sender)
        if window is None:
            if len(self._windows) >= MAX_SENDERS:
                self._windows = {name: held for name, held in self._windows.items() if self.is_member(name)}
            if len(self._windows) >= MAX_SENDERS:
                raise Dropped("too many senders")
            newest = self.hellos.newest.get(opened.sender, (opened.epoch, -1))
            window = self._windows[opened.sender] = ReplayWindow(*newest)
        if not window.accept(opened.epoch, opened.counter):
            raise Dropped("replay")

    def _of_datagram(self, to: str, epoch: int) -> bytes:
        return pack([VERSION, "datagram", self._fleet, to, epoch])

    def _of_frame(self, frame: Frame) -> bytes:
        return pack([VERSION, frame.part, self._fleet, frame.to, frame.greeting])
