"""The gateway's birth message, where a central broker takes no large packets and does not say so."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

from edgert.core.settings.gateway import Central, Gateway, GatewaySettings
from gateway.control.central import CentralConnection


class Connection:
    """Finds its broker's limit when it tries to send for the second time."""

    def __init__(self, most: int) -> None:
        self.tried, self.sent = 0, list[bytes]()
        self.limits = SimpleNamespace(most=lambda _: most, fits=lambda _, payload: not self.refuses("", payload))

    def refuses(self, _: str, payload: bytes) -> str:
        return "too large" if self.tried and len(payload) > self.limits.most("") else ""

    def publish(self, _: str, payload: bytes, **how: object) -> bool:
        self.tried += 1
        if self.tried > 1:
            self.sent.append(payload)
        return self.tried > 1


def test_a_limit_that_is_found_while_the_birth_waits_shortens_it_and_is_no_error() -> None:
    central = CentralConnection(GatewaySettings(gateway=Gateway(id="g1"), central=Central(enabled=True)), "g1")
    central.again_s = 0.0
    central._flows = cast(Any, SimpleNamespace(runs=[f"flow-of-a-long-name-{n}" for n in range(9)]))
    central.uplink = cast(Any, SimpleNamespace(connected=lambda: None))
    central.connection = connection = cast(Any, Connection(100))

    async def connect() -> None:
        central._connected()
        await central._send(*await central.answers.get())

    asyncio.run(connect())
    (birth,) = connection.sent
    assert json.loads(birth).keys() == {"state", "version"}
    assert not central.drops
