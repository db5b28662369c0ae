"""A broker's session that grants what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import SimpleNamespace

from edgert.mqtt.packets.packets import Subscription
from edgert.mqtt.session.events import Subscribed
from gateway.ingest.subscriber import ID_IN_USE
from tests.gateway.whole_gateway import Gateway


class Granting:
    """In the place of a client: its broker grants each subscription, but those to `in_use` at the second time only."""

    def __init__(self, gateway: Gateway, protocol: str, in_use: Iterable[str] = ()) -> None:
        self.connection = 1
        self.status = SimpleNamespace(connected=True, protocol=protocol, error="")
        self.subscriptions: dict[str, Subscription] = {}
        self.given_up: list[str] = []
        self.in_use = set(in_use)
        self._tokens = 0
        self._answered = gateway.ingest.subscriber.answered

    def subscribe(self, subscriptions: Sequence[Subscription]) -> int:
        self._tokens += 1
        self.subscriptions |= {s.filter: s for s in subscriptions}
        answers = tuple((s.filter, ID_IN_USE if s.filter in self.in_use else s.qos) for s in subscriptions)
        self.in_use -= {s.filter for s in subscriptions}
        asyncio.get_running_loop().call_soon(self._answered, Subscribed(self._tokens, answers))
        return self._tokens

    def unsubscribe(self, filters: Sequence[str]) -> int:
        self.given_up += filters
        for topic_filter in filters:
            self.subscriptions.pop(topic_filter, None)
        return 0

    def acknowledge(self, packets: Sequence[tuple[int, int]], connection: int) -> bool:
        return True

    def pause(self) -> None:
        """It reads nothing anyway."""

    resume = pause
