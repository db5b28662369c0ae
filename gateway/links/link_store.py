"""The part of the database that links between gateways need, as they see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from edgert.core.errors import EdgertError
from edgert.links.messages import Number
from edgert.links.protocol import Gap, Stored
from edgert.store.database import Database
from edgert.store.outbox import link_outbox
from gateway.base.tasks import OnStore


class LinkStream(NamedTuple):
    """The batches of one flow from one gateway to another."""

    flow: str
    origin: str
    destination: str


class LinkStore:
    """Batches that wait for other gateways, each committed with the checkpoint that made it, and positions."""

    def __init__(self, database: Database, store: OnStore, gateway: str) -> None:
        """`gateway`: ours."""
        self._database, self._store, self._gateway = database, store, gateway

    async def position(self, stream: LinkStream) -> Number:
        """The last number of the stream in this database; (0, 0) where there is none.

        At the origin: the greatest number ever given to a batch, also if that is deleted. At the destination: the last
        number that the flow's last commit covers."""
        own = stream.origin == self._gateway
        read, other = (link_outbox.last, stream.destination) if own else (link_outbox.position, stream.origin)
        return Number(*await self._store(lambda: self._database.read(read, stream.flow, other)))

    async def pending(self, stream: LinkStream, after: Number, limit_bytes: int) -> Sequence[Stored]:
        """Batches of the stream with numbers greater than `after`, in the order of their numbers, earlier epochs first.
        Their bodies may exceed `limit_bytes` by one batch; none only where there is none."""
        found: list[Stored] = await self._store(
            lambda: self._database.read(link_outbox.pending, stream.flow, stream.destination, after, limit_bytes)
        )
        return found

    async def delete_to(self, stream: LinkStream, number: Number) -> None:
        """Deletes the batches of the stream up to `number`, of this and earlier epochs: the destination has committed
        them."""
        await self._store(lambda: self._database.write(link_outbox.delete_to, stream.flow, stream.destination, number))


class NotNow(EdgertError):
    """The flow stands still, or does not run here: its batches stay at their origin until it takes them."""


class Deliver(Protocol):
    """Takes a batch for a flow, on the loop, without waiting. It is called once for each number after the position with
    which the stream was opened, in order."""

    def __call__(self, stream: LinkStream, number: Number, body: bytes, gap: Gap | None) -> None:
        """`gap`: batches that are missing before this one for good. Bodies come from outside: read them as such.

        If it raises, the batch and all after it come again in a second. `NotNow` is no fault."""
        ...
