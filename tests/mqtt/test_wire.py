"""What was read is worked on in parts: when the last of them is done, the wire reads on."""

from __future__ import annotations

import asyncio
import socket
from typing import Any
from unittest.mock import Mock

from edgert.core.clock import VirtualClock
from edgert.mqtt.clients import wire
from edgert.mqtt.clients.coalesce import Coalescer
from edgert.mqtt.clients.wire import Wire
from tests.waiting import until


def slow(most: list[int]) -> Any:
    """A client to which each part is long work, so that the next is short."""
    clock = VirtualClock()
    made = Mock(clock=clock.monotonic, tick_s=60.0, outgoing_bytes=0)

    def received(data: bytes, now: float) -> int:
        most.append(len(data))
        clock.advance(2 * wire.LONG_READ_S if len(most) % 2 else 0.0)
        return 0

    made.received_untrusted = received
    return made


def test_after_a_read_that_was_worked_on_in_parts_reading_goes_on() -> None:
    parts: list[int] = []

    async def run() -> int:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: Wire(slow(parts), Coalescer(0.0, 0.0)), sock=ours)
        theirs.setblocking(False)
        for _ in range(20):
            await asyncio.wait_for(loop.sock_sendall(theirs, bytes(100_000)), 60.0)
        await until(lambda: sum(parts) >= 2_000_000, "all that was sent")
        theirs.close()
        return sum(parts)

    assert asyncio.run(run()) == 2_000_000
