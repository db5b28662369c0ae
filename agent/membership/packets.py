"""Packets between agents: encrypted, authenticated, and taken once.

    packet      = version (1 byte) · key id (4) · nonce (12) · ciphertext · tag (16)
    plain text  = epoch (8) · counter (8) · length of name (1) · name of the sender · body; of version 2 then
                  certificate · its length (2) · signature (64), see `edgert.boards.member_identity`

A packet opens only where its sender meant it to; the associated data, which are not sent, say so:

    over UDP    version, fleet, receiver and the receiver's epoch: not at another board, nor after its restart. Each
                sender counts its packets; the receiver takes each number of the newest epoch once.
    over TCP    version, fleet, receiver, place in the exchange, and the 16 random bytes with which the answering side
                answers the first frame, the hello: in no other connection. The hello asks for nothing but them, and is
                taken once: one for a start of the receiver as a packet over UDP, one for an address by `HelloMemory`.
                A hello of an older start of its sender is answered by a refusal, made for this hello alone.
"""

from __future__ import annotations

import contextlib
import ipaddress
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from agent.membership.files import MAX_SENDERS, HelloMemory
from agent.membership.keys import ID_BYTES, NONCE_BYTES, TAG_BYTES, KeyRing
from agent.membership.members import Peer
from edgert.core.errors import EdgertError, SignatureError
from edgert.core.ids import GATEWAY_NAME
from edgert.core.packing import pack

if TYPE_CHECKING:
    from edgert.boards.member_identity import BoardIdentity

VERSION, SIGNED = 1, 2
"""Versions of packets: sealed with the fleet's key, and signed by the board that sends them, too."""
MAX_SENT: Final = 1_232
"""Bytes of a UDP packet that we seal, at most: with the headers of UDP and IPv6 it has the 1,280 bytes that each path
of IPv6 carries, so that it is never fragmented, nor dropped for its size."""
MAX_DATAGRAM: Final = 1_400
"""Bytes of a UDP packet that is taken, at most."""
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

FramePart = Literal["hello", "refusal", "head", "body", "answer head", "answer body"]
Reason = Literal[
    "too large",
    "truncated",
    "version",
    "unknown key",
    "bad tag",
    "malformed",
    "revoked",
    "replay",
    "older start",
    "unsigned",
    "bad signature",
    "no certificate",
    "too many senders",
    "no request",
]
"""`bad tag`: changed, or made for another fleet, receiver, start of the receiver or connection. `no request`: a
connection whose first frame did not come in time. `older start`: a later start of the sender is known. `no
certificate`: signed by a member whose certificate is not known yet, or is not the fleet's."""


class OlderStart(NamedTuple):
    """The sender of a packet that was dropped, since a later start of the same board is known."""

    sender: str
    epoch: int
    counter: int
    newest: int
    """The epoch of the later start."""


class Dropped(EdgertError):
    """A packet was not taken; `reason` is what drops are counted by. `sender`: who it says it is from, where a check of
    its signature, or of its start, failed. `older`: set for the reason `older start`."""

    def __init__(self, reason: Reason, sender: str = "", older: OlderStart | None = None) -> None:
        super().__init__(f"a packet was dropped: {reason}")
        self.reason, self.sender, self.older = reason, sender, older


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
    expected: str = ""
    """The member at the address, where `to` names nobody and its sender knows it."""


def hello_to(to: Peer) -> Frame:
    """The hello for one start of a board."""
    return Frame(pack(to.epoch), to.name, "hello")


def hello_at(address: tuple[Any, ...] | None, expected: str = "") -> Frame:
    """The hello for the board at a socket's address, of which no start is known. Raises `ConnectionError` without."""
    if address is None:
        raise ConnectionError("the connection is closed")
    host = ipaddress.ip_address(address[0].partition("%")[0])
    return Frame(pack([(getattr(host, "ipv4_mapped", None) or host).packed, address[1]]), ANYBODY, "hello", expected)


def refusal_of(sender: str, epoch: int, counter: int) -> Frame:
    """The place of the refusal of one hello."""
    return Frame(pack([epoch, counter]), sender, "refusal")


class ReplayWindow:
    """Which counters of one start of a sender have come: the last `WINDOW` of them."""

    __slots__ = ("_bits", "_highest")

    def __init__(self, highest: int = -1) -> None:
        """All counters up to `highest` have come."""
        self._highest = highest
        self._bits = (1 << WINDOW) - 1

    def accept(self, counter: int) -> bool:
        """Take a packet's number: False for one that came before, or may have."""
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


class Starts:
    """The replay windows of one sender: of its newest start, and of the earlier one that is the member here. So the
    member is not muted by a second agent of its name with a later epoch."""

    __slots__ = ("_windows",)

    def __init__(self, epoch: int, highest: int = -1) -> None:
        """All counters of `epoch` up to `highest` have come."""
        self._windows = {epoch: ReplayWindow(highest)}

    @property
    def newest(self) -> int:
        """The epoch of the newest start."""
        return max(self._windows)

    def accept(self, epoch: int, counter: int, member: int | None) -> bool:
        """Take a packet's number: False for one that came before, or may have, and for one of an older start.
        `member`: the epoch of the start that is the member here, None for no member."""
        if epoch > self.newest:
            self._windows = {e: window for e, window in self._windows.items() if e == member}
            self._windows[epoch] = ReplayWindow()
        elif len(self._windows) > 1 and self.newest == member:
            self._windows = {member: self._windows[member]}
        window = self._windows.get(epoch)
        return window is not None and window.accept(counter)

    def is_older(self, epoch: int) -> bool:
        """True of a start of which no packet is taken any more."""
        return epoch not in self._windows and epoch < self.newest


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
        self.identity: BoardIdentity | None = None
        """The certificate by which packets are signed, and those of others checked; None: neither."""
        self.revoked: frozenset[str] = frozenset()
        """Boards that are refused, although they may hold a key."""
        self.drops: Counter[str] = Counter()
        """Packets that were not taken, by reason."""
        self._fleet = fleet
        self._random_bytes = random_bytes
        self._counter = 0
        self.member_epoch: Callable[[str], int | None] = lambda name: None
        """The epoch of a member; None of a board that is none: its windows make way where there are too many."""
        self.hellos = hellos or HelloMemory()
        self._starts: dict[str, Starts] = {}

    def seal(self, body: bytes, to: Peer) -> bytes:
        """A UDP packet for one start of one board. Raises `ValueError` for a body that makes it too large."""
        return self._seal(body, to.name, lambda version: self._of_datagram(version, to.name, to.epoch), MAX_SENT)

    def open_untrusted(self, packet: bytes) -> Opened:
        """Raises `Dropped`, and counts it, unless the UDP packet is new and a member of the fleet sealed it for this
        start of this agent."""
        with self._counting():
            version = packet[0] if packet else 0
            opened = self._open(packet, MAX_DATAGRAM, {self._of_datagram(version, self.name, self.epoch): self.name})
            self._accept(opened)
            return opened

    def seal_frame(self, body: bytes, frame: Frame) -> bytes:
        """A packet over TCP. Raises `ValueError` for a body that makes it too large."""
        carries = frame.part in ("hello", "refusal", "answer head")
        to = frame.to or frame.expected
        return self._seal(body, to, lambda version: self._of_frame(version, frame), MAX_FRAME, carries=carries)

    def open_frame_untrusted(self, packet: bytes, *frames: Frame) -> Opened:
        """Raises `Dropped`, and counts it, unless a member of the fleet sealed the packet for one of these places. As
        each place has one packet, it is new where the greeting of its connection is; a hello is taken once."""
        with self._counting():
            version = packet[0] if packet else 0
            opened = self._open(packet, MAX_FRAME, {self._of_frame(version, frame): frame.to for frame in frames})
            if any(frame.part == "hello" for frame in frames):
                self._accept(opened)
            return opened

    @property
    def sealed(self) -> int:
        """The counter of the packet that was sealed last."""
        return self._counter

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

    def _seal(
        self, body: bytes, to: str, context: Callable[[int], bytes], limit: int, *, carries: bool = False
    ) -> bytes:
        self._counter += 1
        name, identity = self.name.encode(), self.identity
        plain = _HEAD.pack(self.epoch, self._counter, len(name)) + name + body
        version = VERSION
        if identity is not None and (not identity.accepts_unsigned or to in identity.known):
            version = SIGNED
            plain = identity.signed(context(version), plain, carries=carries)
        elif identity is not None and carries and not body:  # a hello, whose content others pass over
            plain = identity.signed(context(version), plain, carries=True)
        packet = bytes((version,)) + self.ring.seal(plain, context(version), self._random_bytes(NONCE_BYTES))
        if len(packet) > limit:
            raise ValueError(f"expected a packet of at most {limit} bytes, got {len(packet)}")
        return packet

    def _open(self, packet: bytes, limit: int, contexts: Mapping[bytes, str]) -> Opened:
        """`contexts`: associated data -> receiver."""
        if len(packet) > limit:
            raise Dropped("too large")
        if len(packet) < _LEAST:
            raise Dropped("truncated")
        if packet[0] not in ((VERSION,) if self.identity is None else (VERSION, SIGNED)):
            raise Dropped("version")
        sealed = memoryview(packet)[1:]
        if not self.ring.knows(sealed):
            raise Dropped("unknown key")
        opened = ((context, self.ring.open_untrusted(sealed, context)) for context in contexts)
        context, plain = next(((context, plain) for context, plain in opened if plain is not None), (b"", b""))
        if not plain:
            raise Dropped("bad tag")
        epoch, counter, length = _HEAD.unpack_from(plain)
        end = _HEAD.size + length
        name = plain[_HEAD.size : end].decode("ascii", "replace")
        if end > len(plain) or not GATEWAY_NAME.fullmatch(name) or epoch >= 1 << 63:
            raise Dropped("malformed")
        if name in self.revoked:
            raise Dropped("revoked")
        body = self._shown(packet[0] == SIGNED, name, context, memoryview(plain))[end:]
        return Opened(name, epoch, counter, body if len(body) > VIEWED_BYTES else bytes(body), contexts[context])

    def _shown(self, signed: bool, name: str, context: bytes, plain: memoryview) -> memoryview:
        """The plain bytes without their signature. Raises `Dropped` where this agent has a certificate, and the sender
        is not shown to be the member that it names."""
        identity = self.identity
        if identity is None:
            return plain
        if not signed and not identity.accepts_unsigned:
            raise Dropped("unsigned", name)
        try:
            return identity.opened_untrusted(name, context, plain)
        except SignatureError as error:
            if signed:
                raise Dropped(error.reason, name) from None
            return plain

    def _accept(self, opened: Opened) -> None:
        member, starts = self.member_epoch(opened.sender), self._starts.get(opened.sender)
        if starts is None:
            if len(self._starts) >= MAX_SENDERS:
                self._starts = {n: starts for n, starts in self._starts.items() if self.member_epoch(n) is not None}
            if len(self._starts) >= MAX_SENDERS:
                raise Dropped("too many senders")
            newest = self.hellos.newest.get(opened.sender, (opened.epoch, -1))
            starts = self._starts[opened.sender] = Starts(*newest)
        if starts.accept(opened.epoch, opened.counter, member):
            return
        if starts.is_older(opened.epoch):
            older = OlderStart(opened.sender, opened.epoch, opened.counter, starts.newest)
            raise Dropped("older start", opened.sender, older)
        raise Dropped("replay")

    def _of_datagram(self, version: int, to: str, epoch: int) -> bytes:
        return pack([version, "datagram", self._fleet, to, epoch])

    def _of_frame(self, version: int, frame: Frame) -> bytes:
        return pack([version, frame.part, self._fleet, frame.to, frame.greeting])
