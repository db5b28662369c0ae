"""A gateway whose subscriptions have identifiers, and whose results are counted by flow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from edgert.core.results.results import RowsBatch, unpack_result_untrusted
from edgert.core.settings.gateway import Sensors
from tests.gateway.whole_gateway import Gateway, document


class SubscribingGateway(Gateway):
    """`saved`: what an earlier one had saved."""

    def __init__(self, path: Path, saved: str = "", *, five: bool = True) -> None:
        super().__init__(path, Sensors(drops_topic=""), saved)
        self.subscriptions = self.ingest.subscriptions
        self.ingest.subscriber.by_id = five
        self.subscribe()

    def subscribe(self) -> str:
        """Subscribes as the ingest does at a connection; returns the text that it saves."""
        self.subscriptions.wanted(self.ingest.subscriber.by_id)
        with self.ingest.lock:
            self.ingest.subscriber.routes.rebuild()
        return self.subscriptions.dump()

    async def deploy(self, name: str, topic: str = "x/{source}") -> str:
        await self.flows.deploy(document(name, topic, topic), "mqtt")
        return self.subscribe()

    def ids(self, topic_filter: str) -> tuple[int, ...]:
        return (self.subscriptions.ids[topic_filter],)

    async def counted(self) -> Counter[str]:
        """Messages by flow. Nothing works any more then."""
        for name in list(self.flows.runs):
            await self.flows.remove(name)
        found: Counter[str] = Counter()
        for stream, _ in self.database.outbox_streams():
            for entry in self.database.outbox(*stream, 0, 1_000):
                batch = unpack_result_untrusted(entry.payload)
                if isinstance(batch, RowsBatch):
                    found[stream[0]] += sum(row[-1] for row in batch.rows)
        self.crash()
        return found
