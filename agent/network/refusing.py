"""The answer over TCP to a hello of an older start of a board: who holds its name, in a frame for this hello alone."""

from __future__ import annotations

import asyncio
from typing import Final

from agent.membership.members import Peer
from agent.membership.packets import GREETING_BYTES, MAX_DATAGRAM, Frame, OlderStart, refusal_of
from agent.membership.protocol import Membership
from agent.network.frames import Frames
from edgert.core.errors import ProtocolError

REFUSED: Final = bytes(GREETING_BYTES)
"""Bytes in place of a greeting: the hello is of a start that is refused, and a frame that says why follows."""


def refuse(frames: Frames, membership: Membership, writer: asyncio.StreamWriter, older: OlderStart) -> None:
    """Answers a hello of an older start."""
    host, port = writer.get_extra_info("peername")[:2]
    body = membership.claims.refusals.answer(Peer(older.sender, older.epoch, (host, port)), older.newest)
    writer.write(REFUSED)
    frames.traffic.sent += len(REFUSED)
    frames.write(writer, body, refusal_of(older.sender, older.epoch, older.counter))


async def take_refusal(
    frames: Frames, membership: Membership, reader: asyncio.StreamReader, place: Frame, now: float
) -> None:
    """Reads why this start is refused, and hands it to the protocol. Raises `ProtocolError` then."""
    opened = await frames.read(reader, MAX_DATAGRAM, place)
    membership.claims.own.told_untrusted(bytes(opened.body), now)
    raise ProtocolError(f"{opened.sender} refuses this start of {membership.name}: it knows a later one")
