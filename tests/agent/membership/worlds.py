"""Transports of members that know each other's addresses."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

from agent.membership.files import HelloMemory
from agent.membership.keys import KeyRing
from agent.membership.members import Address, State
from agent.membership.messages import Claim
from agent.membership.packets import Frame, Sealer
from agent.membership.parameters import Parameters
from agent.membership.protocol import Membership
from agent.network.transport import Transport
from edgert.core.system_clock import SystemClock
from tests.waiting import DEADLINE_S


async def started(
    name: str, key: bytes = bytes(32), epoch: int = 1, at: Address = ("127.0.0.1", 0), folder: Path | None = None
) -> Transport:
    """`folder`: where it remembers hellos."""
    clock, random = SystemClock(), Random(name)
    membership = Membership(name, ("127.0.0.1", 1), epoch, Parameters(), random, clock.monotonic())
    sealer = Sealer(name, "f", epoch, KeyRing([key]), random.randbytes, HelloMemory(folder))
    transport = Transport(membership, sealer, clock, lambda _: None)
    transport.first_s = DEADLINE_S  # on a busy machine a peer may answer late
    address = await transport.start(at)
    membership.move(address, clock.monotonic())
    return transport


def introduce(to: Transport, other: Transport) -> None:
    own = other.membership.roster.own
    to.membership.claims.consider(Claim(own.name, own.version.epoch, 9, State.ALIVE, *own.address, own.name), 0.0)


def sealed(asker: Transport, hello: Frame) -> bytes:
    """The first bytes of a connection."""
    packet = asker.sealer.seal_frame(b"", hello)
    return struct.pack("<I", len(packet)) + packet


@contextlib.asynccontextmanager
async def recorder(board: Transport) -> AsyncIterator[tuple[Address, bytearray]]:
    """A man in the middle: passes connections on to the board, and keeps what the askers sent."""
    record, to = bytearray(), board.membership.roster.own.address

    async def tap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upwards, to_board = await asyncio.open_connection(*to)

        async def up() -> None:
            while data := await reader.read(65_536):
                record.extend(data)
                to_board.write(data)

        task = asyncio.create_task(up())
        while data := await upwards.read(65_536):
            writer.write(data)
        task.cancel()
        for end in (writer, to_board):
            end.close()

    server = await asyncio.start_server(tap, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[:2], record
    finally:
        server.close()


async def answered(board: Transport, sent: bytes, size: int = 0) -> bytes:
    """All that the board sends to one who sends this; its first `size` bytes, if given."""
    loop, found = asyncio.get_running_loop(), b""
    with socket.socket() as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, board.membership.roster.own.address)
        with contextlib.suppress(ConnectionError):
            await loop.sock_sendall(sock, sent)
            while not size or len(found) < size:
                data = await loop.sock_recv(sock, 65_536)
                if not data:
                    break
                found += data
    return found
