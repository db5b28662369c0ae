"""An inbox, messages for it, and what its flow took of them."""

from __future__ import annotations

from typing import Any

from edgert.mqtt.packets.packets import Publish
from edgert.runtime.checkpoint.progress import Progress
from gateway.ingest.inbox import Inbox, Reader, Route


def message(packet_id: int, payload: bytes = b"x", **more: Any) -> Publish:
    return Publish("t", payload, more.pop("qos", 1), packet_id=packet_id, **more)


def inbox_of(*flows: Progress, retained: bool = False) -> tuple[Inbox, Route]:
    inbox = Inbox()
    inbox.flows.extend(flows)
    return inbox, Route(tuple(Reader(f, n, retained) for n, f in enumerate(flows)))  # type: ignore[arg-type]


def taken(inbox: Inbox, route: Route, *messages: Publish) -> int:
    batches = inbox.receive(messages, lambda topic, ids: route, 0.0, 0.0)
    return sum(len(b) * len(r.readers) for r, b in batches)
