"""A client that notes what it hears, over real brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from edgert.mqtt.clients.reconnect import Backoff
from edgert.mqtt.clients.transport import BrokerAddress, Handlers, MqttClient, Tls
from edgert.mqtt.packets.packets import Oversized, Publish, Publishes, Subscription
from edgert.mqtt.session.events import Connected, Subscribed
from edgert.mqtt.session.options import SessionOptions
from tests.brokers import Broker
from tests.publishes import singly
from tests.waiting import until

FAST = Backoff(first_s=0.02, max_s=0.1)


class Recorder:
    """A client with a memory. Acknowledges at once if `acknowledges`."""

    def __init__(self, broker: Broker | int, client_id: str = "test", *, filters: tuple[tuple[str, int], ...] = (),
                 acknowledges: bool = True, tls: Tls | None = None, budget_s: float = 0.005,
                 host: str = "127.0.0.1", **options: Any) -> None:  # fmt: skip
        self.filters = filters
        self.acknowledges = acknowledges
        self.messages: list[Publish] = []
        self.calls: list[int] = []
        self.connected: list[Connected] = []
        self.subscribed: list[Subscribed] = []
        self.published: list[tuple[int, int]] = []
        self.released: list[int] = []
        self.oversized: list[Oversized] = []
        self.disconnected: list[str] = []
        handlers = Handlers(
            on_connected=self._on_connected,
            on_messages=self._on_messages,
            on_subscribed=self.subscribed.append,
            on_published=lambda packet_id, reason: self.published.append((packet_id, reason)),
            on_released=self._on_released,
            on_oversized=self._on_oversized,
            on_disconnected=self.disconnected.append,
        )
        port = broker if isinstance(broker, int) else broker.port
        self.client = MqttClient(
            BrokerAddress(host, port, tls), SessionOptions(client_id, **options), handlers,
            backoff=FAST, latency_budget_s=budget_s,
        )  # fmt: skip

    def _on_connected(self, event: Connected) -> None:
        self.connected.append(event)
        if self.filters and not event.session_present:
            self.client.subscribe([Subscription(text, qos, i + 1) for i, (text, qos) in enumerate(self.filters)])

    def _on_messages(self, publishes: Publishes) -> None:
        messages = list(singly(publishes))
        self.messages += messages
        self.calls.append(len(messages))
        if self.acknowledges:
            self.client.acknowledge([(m.packet_id, m.qos) for m in messages], self.client.connection)

    def _on_released(self, packet_id: int) -> None:
        self.released.append(packet_id)
        self.client.complete([packet_id], self.client.connection)

    def _on_oversized(self, event: Oversized) -> None:
        self.oversized.append(event)
        self.client.acknowledge([(event.packet_id, event.qos)])

    @property
    def payloads(self) -> list[bytes]:
        return [m.payload for m in self.messages]


@asynccontextmanager
async def running(recorder: Recorder) -> AsyncIterator[Recorder]:
    """Connected, and subscribed if it has filters; stopped in good order afterwards."""
    before = len(recorder.connected)
    await recorder.client.start()
    try:
        await until(lambda: len(recorder.connected) > before, "a connection")
        if recorder.filters and not recorder.connected[-1].session_present:
            await until(lambda: recorder.subscribed, "SUBACK")
        yield recorder
    finally:
        await recorder.client.stop()
