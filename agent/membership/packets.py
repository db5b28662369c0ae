"""Packets between agents: encrypted, authenticated, and taken once.

    packet      = version (1 byte) · key id (4) · nonce (12) · ciphertext · tag (16)
    plain text  = epoch (8) · counter (8) · length of name (1) · name of the sender · body

The associated data is the version, the fleet's name and the kind of packet, so that a packet of another fleet or kind
does not open. Each sender counts its packets; the receiver takes each number of the newest epoch once.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from agent.membership.keys import ID_BYTES, NONCE_BYTES, TAG_BYTES, KeyRing
from edgert.core.errors import EdgertError
from edgert.core.ids import GATEWAY_NAME

VERSION: Final = 1
MAX_DATAGRAM: Final = 1_400
"""Bytes of a sealed UDP packet, at most: below the smallest usual path MTU, so that it is never fragmented."""
MAX_FRAME: Final = 1 << 24
"""Bytes of a sealed message over TCP, at most: state of operators that move is the greatest. The receiver reads so much
only of one whose first packet was sealed with the key of the fleet."""
WINDOW: Final = 1_024
"""Packets of a sender may arrive in another order within so many."""
MAX_SENDERS: Final = 4_096
_HEAD: Final = struct.Struct("<QQB")
_LEAST: Final = 1 + ID_BYTES + NONCE_BYTES + TAG_BYTES + _HEAD.size

Kind = Literal["datagram", "stream"]
Reason = Literal[
    "too large", "truncated", "version", "unknown key", "bad tag", "malformed", "revoked", "replay", "too many senders"
]


class Dropped(EdgertError):
    """A packet was not taken; `reason` is what drops are counted by."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"a packet was dropped: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Opened:
    """A packet that a holder of the fleet key sealed, and that came for the first time."""

    sender: str
    epoch: int
    body: bytes


class ReplayWindow:
    """Which counters of one sender have come: those of its newest epoch, the last `WINDOW` of them."""

    __slots__ = ("_bits", "_epoch", "_highest")

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._highest = -1
        self._bits = 0

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

    def __init__(self, name: str, fleet: str, epoch: int, ring: KeyRing, random_bytes: Callable[[int], bytes]) -> None:
        self.name = name
        self.epoch = epoch
        self.ring = ring
        """May be replaced at any time: keys rotate while the agent runs."""
        self.revoked: frozenset[str] = frozenset()
        """Boards that are refused, although they may hold a key."""
        self.drops: Counter[str] = Counter()
        """Packets that were not taken, by reason."""
        self._fleet = fleet.encode()
        self._random_bytes = random_bytes
        self._counter = 0
        self._windows: dict[tuple[str, Kind], ReplayWindow] = {}

    def seal(self, body: bytes, kind: Kind = "datagram") -> bytes:
        """Raises `ValueError` for a body that makes the packet too large."""
        self._counter += 1
        name = self.name.encode()
        plain = _HEAD.pack(self.epoch, self._counter, len(name)) + name + body
        packet = bytes((VERSION,)) + self.ring.seal(plain, self._context(kind), self._random_bytes(NONCE_BYTES))
        if len(packet) > _limit(kind):
            raise ValueError(f"expected a packet of at most {_limit(kind)} bytes, got {len(packet)}")
        return packet

    def open_untrusted(self, packet: bytes, kind: Kind = "datagram") -> Opened:
        """Raises `Dropped`, and counts it, unless the packet is from a member of the fleet and new."""
        try:
            return self._open(packet, kind)
        except Dropped as dropped:
            self.drops[dropped.reason] += 1
            raise

    def new_token(self) -> str:
        """A token that ties an answer to its request."""
        return self._random_bytes(12).hex()

    def forget(self, name: str) -> None:
        """Drop what is remembered of a sender that has left the table of members."""
        for kind in ("datagram", "stream"):
            self._windows.pop((name, kind), None)

    def _open(self, packet: bytes, kind: Kind) -> Opened:
        if len(packet) > _limit(kind):
            raise Dropped("too large")
        if len(packet) < _LEAST:
            raise Dropped("truncated")
        if packet[0] != VERSION:
            raise Dropped("version")
        sealed = packet[1:]
        if not self.ring.knows(sealed):
            raise Dropped("unknown key")
        plain = self.ring.open_untrusted(sealed, self._context(kind))
        if plain is None:
            raise Dropped("bad tag")
        epoch, counter, length = _HEAD.unpack_from(plain)
        end = _HEAD.size + length
        name = plain[_HEAD.size : end].decode("ascii", "replace")
        if end > len(plain) or not GATEWAY_NAME.fullmatch(name) or epoch >= 1 << 63:
            raise Dropped("malformed")
        if name in self.revoked:
            raise Dropped("revoked")
        self._accept(name, kind, epoch, counter)
        return Opened(name, epoch, plain[end:])

    def _accept(self, name: str, kind: Kind, epoch: int, counter: int) -> None:
        window = self._windows.get((name, kind))
        if window is None:
            if len(self._windows) >= 2 * MAX_SENDERS:
                raise Dropped("too many senders")
            window = self._windows[name, kind] = ReplayWindow(epoch)
        if not window.accept(epoch, counter):
            raise Dropped("replay")

    def _context(self, kind: Kind) -> bytes:
        return bytes((VERSION,)) + kind[:1].encode() + self._fleet


def _limit(kind: Kind) -> int:
    return MAX_DATAGRAM if kind == "datagram" else MAX_FRAME
