"""The part of the database that links between gateways need, as they see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from edgert.core.errors import EdgertError
from edgert.links.messages import Number
from edgert.links.protocol import Gap, Stored


class LinkStream(NamedTuple):
    """The batches of one flow from one gateway to another."""

    flow: str
    origin: str
    destination: str


class LinkStore(Protocol):
    """Batches that wait for other gateways, each committed with the checkpoint that made it, and positions."""

    async def position(self, stream: LinkStream) -> Number:
        """The last number of the stream in this database; (0, 0) where there is none.

        At the origin: the greatest number ever given to a batch, also if that is deleted. At the destination: the last
        number that the flow's last commit covers."""
        ...

    async def pending(self, stream: LinkStream, after: Number, limit_bytes: int) -> Sequence[Stored]:
        """Batches of the stream with numbers greater than `after`, in the order of their numbers, earlier epochs first.
        Their bodies may exceed `limit_bytes` by one batch; none only where there is none."""
        ...

    async def delete_to(self, stream: LinkStream, number: Number) -> None:
        """Deletes the batches of the stream up to `number`, of this and earlier epochs: the destination has committed
        them."""
        ...


class NotNow(EdgertError):
    """The flow stands still, or does not run here: its batches stay at their origin until it takes them."""


class Deliver(Protocol):
    """Takes a batch for a flow, on the loop, without waiting. It is called once for each number after the position with
    which the stream was opened, in order."""

    def __call__(self, stream: LinkStream, number: Number, body: bytes, gap: Gap | None) -> None:
        """`gap`: batches that are missing before this one for good. Bodies come from outside: read them as such.

        If it raises, the batch and all after it come again in a second. `NotNow` is no fault."""
        ...
