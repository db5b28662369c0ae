"""The requests and the bytes of large messages that are under way at one time, over all connections together.

A message of `SMALL_BYTES` or less needs no allowance: the number of connections bounds these. Larger ones wait until
enough of `TOTAL_BYTES` is free, each member's for its turn, and a member has one at a time. So a member that sends
large messages without end holds up nobody but itself for longer than one of its messages takes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

SMALL_BYTES: Final = 1 << 16
TOTAL_BYTES: Final = 1 << 24
"""Memory for one of the largest messages. Sealed and opened form, and what is made of it, need some three times as
much; the agent's unit has 128 MB (`MemoryMax=`), of which the agent without messages needs half."""


PATIENCE_S: Final = 30.0
"""Longest wait for bytes: for the messages of five members that each send as slowly as is allowed."""


class Allowance:
    """Grants bytes to members in turn."""

    def __init__(self, total: int = TOTAL_BYTES) -> None:
        self.requests: Counter[str] = Counter()
        """Member -> requests of it that are carried out."""
        self._total = self._free = total
        self._waiting: dict[str, list[tuple[int, asyncio.Future[None]]]] = {}
        """Member -> its messages that wait. The member whose turn is next comes first."""
        self._holding: set[str] = set()

    @property
    def used(self) -> int:
        """Bytes that are granted now."""
        return self._total - self._free

    @contextlib.asynccontextmanager
    async def of(self, member: str, size: int) -> AsyncIterator[None]:
        """Holds room for a message of `size` bytes from or to a member; waits for it. Raises `TimeoutError`."""
        if size <= SMALL_BYTES:
            yield
            return
        size = min(size, self._total)
        granted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(member, []).append((size, granted))
        self._grant()
        try:
            await asyncio.wait_for(granted, PATIENCE_S)
            yield
        finally:
            if granted.done() and not granted.cancelled():
                self._free += size
                self._holding.discard(member)
            else:
                self._forget(member, granted)
            self._grant()

    def _grant(self) -> None:
        """Grants in the order of turns; a large message that is next is not overtaken by smaller ones for ever."""
        for member in list(self._waiting):
            if member in self._holding:
                continue
            size, granted = self._waiting[member][0]
            if size > self._free:
                return
            self._free -= size
            self._holding.add(member)
            self._forget(member, granted)
            granted.set_result(None)

    def _forget(self, member: str, granted: asyncio.Future[None]) -> None:
        """Takes a message out of the line. The member's next one goes to the line's end."""
        rest = [one for one in self._waiting.pop(member, []) if one[1] is not granted]
        if rest:
            self._waiting[member] = rest
