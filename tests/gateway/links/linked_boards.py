"""Boards that are linked: their databases, and flows that note what they get."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from edgert.core.settings.gateway import Links
from edgert.links.messages import NOTHING, Number
from edgert.links.protocol import Gap, Stored
from edgert.links.tls import Credentials, Identity
from edgert.mqtt.clients.reconnect import Backoff
from gateway.links.link_store import LinkStore, LinkStream
from gateway.links.peers import Peers
from tests.links.certificates import FLEET

HOST = "127.0.0.1"


class Database:
    """Of one gateway; outlives its `Board`s."""

    def __init__(self) -> None:
        self.outbox: dict[LinkStream, list[Stored]] = {}
        self.positions: dict[LinkStream, Number] = {}
        self.failures = self.reads = 0

    async def position(self, stream: LinkStream) -> Number:
        await asyncio.sleep(0)
        return self.positions.get(stream, NOTHING)

    async def pending(self, stream: LinkStream, after: Number, limit_bytes: int) -> Sequence[Stored]:
        await asyncio.sleep(0)
        self.reads += 1
        if self.failures:
            self.failures -= 1
            raise OSError("the disk is gone")
        found: list[Stored] = []
        for stored in self.outbox.get(stream, []):
            if Number(stored.epoch, stored.sequence) > after and sum(len(s.body) for s in found) < limit_bytes:
                found.append(stored)
        return found

    async def delete_to(self, stream: LinkStream, number: Number) -> None:
        await asyncio.sleep(0)
        rows = self.outbox.get(stream, [])
        self.outbox[stream] = [s for s in rows if Number(s.epoch, s.sequence) > number]

    def put(self, stream: LinkStream, *bodies: bytes) -> Number:
        epoch, sequence = self.positions.get(stream, Number(1, 0))
        for body in bodies:
            sequence += 1
            self.outbox.setdefault(stream, []).append(Stored(epoch, sequence, body))
        self.positions[stream] = Number(epoch, sequence)
        return self.positions[stream]


class Board:
    """One life of a gateway's process: its links, and flows that note what they get."""

    def __init__(self, name: str, database: Database, credentials: Credentials | None = None) -> None:
        files = credentials or Credentials("", "", "")
        settings = Links(True, HOST, 0, files.certificate, files.key, files.ca, files.crl)
        self.database = database
        self.got: list[tuple[LinkStream, Number, bytes]] = []
        self.behind: list[tuple[LinkStream, Number]] = []
        self.refusals = 0
        """Batches that the flow does not take."""
        self.refusal: Exception = RuntimeError("this flow is not well")
        self.peers = Peers(
            Identity(FLEET, name), settings, cast(LinkStore, database), self.deliver,
            lambda stream, number: self.behind.append((stream, number)), backoff=Backoff(0.01, 0.02),
        )  # fmt: skip
        self.peers.tick_s = 0.02

    def deliver(self, stream: LinkStream, number: Number, body: bytes, gap: Gap | None) -> None:
        if self.refusals:
            self.refusals -= 1
            raise self.refusal
        self.got.append((stream, number, body))

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.got]

    def commit(self, flow: str, origin: str) -> None:
        """A checkpoint covers all that was given to the flow."""
        stream, number, _ = self.got[-1]
        self.database.positions[stream] = number
        self.peers.committed(flow, origin, number)


AB = LinkStream("f", "a", "b")


async def linked(a: Board, b: Board) -> None:
    for board in (a, b):
        await board.peers.start()
    link(a, b)


def link(a: Board, b: Board) -> None:
    a.peers.set_peers({"b": (HOST, b.peers.listening.port)})
    b.peers.set_peers({"a": (HOST, a.peers.listening.port)})
