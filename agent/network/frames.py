"""Frames of a connection between agents: their bytes, their bounds, and what is in them.

A frame is its length (4 bytes, little-endian) and a sealed packet.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.membership.packets import ANYBODY, MAX_DATAGRAM, MAX_FRAME, Dropped, Frame, FramePart, Opened, Sealer
from edgert.core.errors import ProtocolError, show
from edgert.core.packing import unpack_untrusted

SYNC: Final = "membership.sync"
LARGE: Final = frozenset({"fleet.gateway", "fleet.pass-on"})
"""Verbs whose messages may have `MAX_FRAME` bytes: they carry state of operators."""
MAX_OTHER: Final = 1 << 22
"""Bytes of a message of any other verb, at most: a table of 4,096 members, or what a fleet remembers of 1,024 flows."""
MAX_ELEMENTS: Final = 400_000
"""Most elements of all lists and maps of a message together. One has 8 to 60 bytes in memory, and 1 when packed."""
_LENGTH: Final = struct.Struct("<I")


@dataclass(slots=True)
class Traffic:
    """Bytes of packets and frames since the start."""

    sent: int = 0
    received: int = 0


class Frames:
    """Writes and reads sealed frames."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self.traffic = Traffic()

    def write(self, writer: asyncio.StreamWriter, body: bytes, frame: Frame) -> None:
        packet = self._sealer.seal_frame(body, frame)
        self.traffic.sent += len(packet) + _LENGTH.size
        writer.write(_LENGTH.pack(len(packet)) + packet)

    @staticmethod
    def places(name: str, greeting: bytes, part: FramePart) -> list[Frame]:
        """The places of a frame for the agent `name`, or for anybody."""
        return [Frame(greeting, to, part) for to in (name, ANYBODY)]

    async def read(self, reader: asyncio.StreamReader, limit: int, *frames: Frame) -> Opened:
        """The next frame. Raises `Dropped`."""
        return await self.opened(reader, await self.length(reader, limit), *frames)

    async def length(self, reader: asyncio.StreamReader, limit: int) -> int:
        """The bytes of the next frame's packet. Raises `Dropped`."""
        length: int = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0]
        if length > limit:
            self._sealer.drops["too large"] += 1
            raise Dropped("too large")
        return length

    async def opened(self, reader: asyncio.StreamReader, length: int, *frames: Frame) -> Opened:
        """The packet of a frame, of which the length was read. Raises `Dropped`."""
        packet = await reader.readexactly(length)
        self.traffic.received += length + _LENGTH.size
        return self._sealer.open_frame_untrusted(packet, *frames)


def largest(verb: str) -> int:
    """Bytes of a message of a verb, sealed, at most."""
    return MAX_FRAME if verb in LARGE else MAX_OTHER


def token_and_verb_untrusted(head: Opened) -> tuple[str, str]:
    """Reads the head of a request. Raises `ProtocolError`."""
    plain = unpack_untrusted(head.body, MAX_DATAGRAM, 16)
    if not (isinstance(plain, list) and len(plain) == 2 and all(isinstance(item, str) for item in plain)):
        raise ProtocolError(f"expected [token, verb], got {show(plain)}")
    token, verb = plain
    if head.to == ANYBODY and verb != SYNC:
        raise ProtocolError(f"{show(verb)}: expected a request that names its receiver")
    return token, verb


def map_untrusted(body: bytes | memoryview) -> Mapping[str, Any]:
    """Reads arguments, or an answer. Raises `ProtocolError` or `PayloadError`."""
    document = unpack_untrusted(body, MAX_FRAME, max_elements=MAX_ELEMENTS)
    if not isinstance(document, dict):
        raise ProtocolError(f"expected a map, got {show(document)}")
    return document
