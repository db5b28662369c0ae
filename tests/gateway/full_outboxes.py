"""A flow that fills its outbox."""

from __future__ import annotations

import copy
from typing import Any

from edgert.flow.document import from_plain
from edgert.mqtt.packets.packets import Publish
from edgert.operators.registry import REGISTRY
from tests.gateway.whole_gateway import Gateway, document


def keeps_all(name: str = "f", topic: str = "x/{source}", description: str = "") -> Any:
    plain = copy.deepcopy(document(name, description).document)
    plain["outbox"] = {"full": "stop-acknowledging"}
    plain["operators"]["in"]["topic"] = topic
    return from_plain(plain, REGISTRY)


def feed(gateway: Gateway, packet_id: int, time: float, *, topic: str = "x/a", dup: bool = False) -> None:
    """A message at that time, and a little later: windows that are older than it are emitted."""
    gateway.clock.set_wall(1_700_000_000 + time)
    payload = b'{"time": %f}' % (1_700_000_000 + time)
    gateway.ingest.feed([Publish(topic, payload, 1, False, dup, packet_id)])
    instances = [i for run in gateway.flows.runs.values() for i in run.all]
    for _ in range(2):
        assert gateway.pool.wait_empty(instances, 60.0)
        gateway.clock.advance(0.3)
        gateway.host.tick(gateway.flows.runs.values())
    assert gateway.pool.wait_empty(instances, 60.0)


def fill(gateway: Gateway) -> None:
    """No room for one more batch."""
    gateway.database.quota_bytes = gateway.database.outbox_size.bytes + 10
