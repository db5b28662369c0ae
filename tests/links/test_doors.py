"""The same walk over every door: memory, the link between slots, a Unix socket, TCP, TLS. The connection dies at any
moment, and so do both ends; everything committed arrives exactly once and in order."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from edgert.links import frames
from edgert.links.frames import frame
from edgert.links.tls import Identity, Listener, TlsLink, connect, tls_context
from edgert.links.unix import LinkClosed, UnixLink
from tests.links.certificates import FLEET, Authority
from tests.links.link import Link
from tests.links.worlds import GREATEST, World
from tests.waiting import in_loop, until


class Memory:
    """A link to the other end in this process."""

    def __init__(self) -> None:
        self.closed = False
        self.backlog_bytes = 0
        self.other: Memory | None = None
        self.end: End | None = None

    def send(self, data: bytes) -> None:
        if not self.closed and self.other is not None and self.other.end is not None:
            self.other.end.got += data

    def close(self) -> None:
        self.closed = True
        if self.other is not None:
            self.other.closed = True


class Slot:
    """The link between slots, read by a loop: what is sent at once is one frame."""

    def __init__(self, sock: socket.socket) -> None:
        self.link, self._loop = UnixLink(sock, self._wait), asyncio.get_running_loop()
        self.end: End | None = None
        self._loop.add_reader(self.link, self._read)

    @property
    def closed(self) -> bool:
        return self.link.closed

    @property
    def backlog_bytes(self) -> int:
        return self.link.backlog_bytes

    def send(self, data: bytes) -> None:
        self.link.send(frame(frames.DATA, data))

    def _wait(self) -> None:
        self._loop.add_writer(self.link, self._flush)

    def _flush(self) -> None:
        if self.link.flush():
            self._loop.remove_writer(self.link)

    def _read(self) -> None:
        try:
            for _, data in self.link.receive():
                if self.end is not None:
                    self.end.got += data
        except LinkClosed:
            self._loop.remove_reader(self.link)

    def close(self) -> None:
        if not self.closed:
            self._loop.remove_reader(self.link)
            self._loop.remove_writer(self.link)
            self.link.close()


class End:
    """A link, and what has come over it."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.sent = 0
        self.got = bytearray()
        self.heard = 0
        if isinstance(link, TlsLink):
            link.begin(self.got.extend, lambda: None)
        elif isinstance(link, Memory | Slot):
            link.end = self

    def send(self, data: bytes) -> None:
        self.sent += len(data)
        self.link.send(data)

    def take(self) -> bytes:
        new = bytes(self.got[self.heard :])
        self.heard = len(self.got)
        return new


class Door:
    """Makes pairs of links."""

    async def pair(self) -> tuple[Link, Link]:
        one, two = Memory(), Memory()
        one.other, two.other = two, one
        return one, two


class UnixDoor(Door):
    async def pair(self) -> tuple[Link, Link]:
        links = []
        for sock in socket.socketpair():
            sock.setblocking(False)
            _, link = await asyncio.get_running_loop().create_connection(TlsLink, sock=sock)
            links.append(link)
        return links[0], links[1]


class SlotDoor(Door):
    async def pair(self) -> tuple[Link, Link]:
        one, two = socket.socketpair()
        return cast(Link, Slot(one)), cast(Link, Slot(two))


class NetworkDoor(Door):
    def __init__(self, authority: Authority | None) -> None:
        self.ours, self.theirs = Identity(FLEET, "a"), Identity(FLEET, "b")
        make = authority.issue if authority else None
        self.client = tls_context(make("a"), server=False) if make else None
        self.listener = Listener(self.theirs, tls_context(make("b"), server=True) if make else None, self._called)
        self.called: list[TlsLink] = []
        self.port = 0

    def _called(self, link: TlsLink) -> None:
        self.called.append(link)

    async def pair(self) -> tuple[Link, Link]:
        if not self.port:
            self.port = await self.listener.start("127.0.0.1", 0)
        link = await connect("127.0.0.1", self.port, "b", self.ours, self.client)
        await until(lambda: self.called, "the listener's end")
        return link, self.called.pop()


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Door]:
    if kind in ("tcp", "tls"):
        door = NetworkDoor(Authority(folder / "ca") if kind == "tls" else None)
        yield door
        await door.listener.stop()
    else:
        yield {"slot": SlotDoor, "unix": UnixDoor, "memory": Door}[kind]()


class Walk:
    def __init__(self, door: Door, draw: random.Random) -> None:
        self.door, self.draw, self.world = door, draw, World()
        self.ends: tuple[End, End] | None = None

    async def connect(self) -> None:
        await self.lose()
        one, two = await self.door.pair()
        self.ends = End(one), End(two)
        self.world.connect()

    async def lose(self) -> None:
        """While bytes are under way: whatever has come by now is heard, the rest is gone."""
        if self.ends is not None:
            self._exchange(self.ends)
            if self.draw.random() < 0.5:
                await asyncio.sleep(0)
            self._hear(self.ends)
            for end in self.ends:
                end.link.close()
            self.ends = None
        self.world.lose()

    async def travel(self) -> None:
        """Everything that is under way arrives."""
        if self.ends is not None:
            one, two = self.ends
            self._exchange(self.ends)
            await until(lambda: len(two.got) == one.sent and len(one.got) == two.sent, "what was sent")
            self._hear(self.ends)

    def _exchange(self, ends: tuple[End, End]) -> None:
        world = self.world
        world.collect()
        ends[0].send(world.to_destination)
        ends[1].send(world.to_origin)
        world.to_destination = world.to_origin = b""

    def _hear(self, ends: tuple[End, End]) -> None:
        self.world.destination.hear(ends[1].take())
        self.world.origin.hear(ends[0].take())

    async def step(self) -> None:
        world, draw = self.world, self.draw
        what = draw.randrange(20)
        if what < 7:
            await self.travel()
        elif what < 11:
            world.origin.commit(*(draw.randbytes(draw.randrange(GREATEST)) for _ in range(draw.randrange(1, 5))))
        elif what < 13:
            world.destination.work(draw.randrange(1, 5))
        elif what < 15:
            world.destination.commit()
        elif what == 15:
            await self.lose()
            world.origin.crash()
        elif what == 16:
            await self.lose()
            world.destination.crash()
        elif what == 17:
            world.origin.open_epoch()
        elif what == 18:
            world.destination.rewind()
        if what > 18 or (self.ends is None and draw.random() < 0.5):
            await self.connect()
        world.check()


@pytest.mark.parametrize("kind", ["memory", "slot", "unix", "tcp", "tls"])
@pytest.mark.parametrize("seed", range(4))
@in_loop
async def test_exactly_once_in_order_over(kind: str, seed: int, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as door:
        walk = Walk(door, random.Random(seed))
        await walk.connect()
        for _ in range(200):
            await walk.step()
        await walk.connect()
        for _ in range(1_000):
            await walk.travel()
            walk.world.destination.work(99)
            walk.world.destination.commit()
            walk.world.check()
            if not walk.world.origin.outbox:
                break
        world = walk.world
        assert world.destination.committed == world.origin.committed
        assert len(world.origin.committed) > 50
        with contextlib.suppress(OSError):
            await walk.lose()


def test_every_door_is_a_link() -> None:
    one, two = socket.socketpair()
    links: list[Link] = [UnixLink(one), UnixLink(two), Memory()]
    for link in links:
        link.send(b"")
        link.close()
        assert link.closed
        assert link.backlog_bytes == 0
