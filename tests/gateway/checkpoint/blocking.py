"""A gateway with a flow that comes to no batch boundary while it is told so, for the tests of what that means."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from edgert.mqtt.packets.packets import Publish
from tests.gateway.whole_gateway import Gateway, document


class Blocking:
    """Two flows, one of which can be kept from ending a turn."""

    def __init__(self, path: Path) -> None:
        self.gateway = Gateway(path)
        self.gateway.host.checkpoints.hold_s = 0.01
        self.free = threading.Event()
        self.free.set()
        self._entered = threading.Event()

    async def deploy(self) -> None:
        for name in ("f", "other"):
            await self.gateway.flows.deploy(document(name), "mqtt")
        logic = self.gateway.flows.runs["f"].stages["minute"].logic
        process = logic.process

        def wait(*arguments: Any) -> Any:
            self._entered.set()
            assert self.free.wait(60.0)
            return process(*arguments)

        logic.process = wait  # type: ignore[method-assign, assignment]

    def feed(self, number: int, *, dup: bool = False) -> None:
        payload = b'{"time": %f}' % (1_700_000_000 + number)
        self.gateway.ingest.feed([Publish("x/a", payload, 1, False, dup, number)])

    async def block(self) -> None:
        """Message 1 is under way, and what comes behind it waits."""
        self.free.clear()
        self._entered.clear()  # of a turn before
        self.feed(1)
        assert await asyncio.to_thread(self._entered.wait, 60.0)
        self.feed(2)

    async def checkpoint(self, later_s: float = 0.0) -> list[tuple[int, int]]:
        """What is acknowledged by it."""
        owed = [(packet_id, qos) for packet_id, qos, *_ in self.gateway.ingest.inbox.owed]
        self.gateway.clock.advance(later_s)
        assert await self.gateway.checkpoint()
        left = len(self.gateway.ingest.inbox.owed)
        return owed[: len(owed) - left]

    async def go_on(self) -> None:
        self.free.set()
        runs = self.gateway.flows.runs.values()
        assert await asyncio.to_thread(self.gateway.pool.wait_empty, [i for r in runs for i in r.all], 60.0)

    def die(self) -> None:
        """What the blocked operator does from now on is in vain."""
        self.gateway.database.close()
        self.free.set()
        self.gateway.pool.stop()


async def counted(path: Path, *again: int) -> dict[str, int]:
    """By flow, what a gateway ships in the end that starts there and to which these are delivered again."""
    after = Gateway(path)
    for number in again:
        after.feed(number, number, dup=True)
    assert after.pool.wait_empty([i for r in after.flows.runs.values() for i in r.all], 60.0)
    found = {}
    for name in ("f", "other"):
        before = after.shipped()
        await after.flows.remove(name)
        found[name] = after.shipped() - before
    after.crash()
    return found
