"""The broker has a session for a gateway whose data folder knows nothing of it: the folder is gone, which is said."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edgert.core.results.results import GapBatch, unpack_result_untrusted
from edgert.flow.document import from_plain
from edgert.mqtt.session.events import Connected
from edgert.operators.registry import REGISTRY
from gateway.ingest.known_session import UNKNOWN
from tests.gateway.ingest.granting import Granting
from tests.gateway.mqtt_api_rig import GOOD
from tests.gateway.whole_gateway import Gateway
from tests.gateway.worlds import alarms
from tests.waiting import in_loop, until

SAVED = '{"ids": {"x": 1}}'


def connect(gateway: Gateway, session_present: bool) -> Granting:
    client = Granting(gateway, "5", ())
    gateway.ingest.client = gateway.ingest.subscriber.client = client  # type: ignore[assignment]
    gateway.ingest.connected(Connected(session_present, "5", 1, "id", 65_535))
    return client


def gaps(gateway: Gateway) -> list[tuple[str, str]]:
    found = [
        unpack_result_untrusted(entry.payload)
        for stream, _ in gateway.database.outbox_streams()
        for entry in gateway.database.outbox(*stream, 0, 100)
    ]
    return [(batch.flow, batch.text) for batch in found if isinstance(batch, GapBatch)]


@in_loop
async def test_each_flow_says_that_what_it_held_is_gone_also_one_that_comes_later(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db", subscriptions="")
    await gateway.flows.deploy(alarms(), "mqtt")
    await gateway.flows.deploy(from_plain({**GOOD, "name": "ships-nothing"}, REGISTRY), "mqtt")
    client = connect(gateway, session_present=True)
    text = UNKNOWN.format(gateway.ingest.drops.broker)
    await until(lambda: not gateway.flows.losses.telling.running, "the gap")
    await gateway.flows.deploy(from_plain({**GOOD, "name": "later"}, REGISTRY), "mqtt")
    assert gateway.flows.gaps == {"f": text, "ships-nothing": text, "later": text}
    assert (gaps(gateway), gateway.database.lost) == ([("f", text)], text), "the tables know flows that ship"
    assert gateway.ingest.known_session.unknown == 1
    assert all((s.subscription_id or 0) > 1 for s in client.subscriptions.values()), "1 may stand for another filter"
    assert gateway.ingest.subscriptions.lost, "so the topic says who reads a message of the session"
    gateway.ingest.connected(Connected(True, "5", 2, "id", 65_535))
    await asyncio.sleep(0)
    assert gateway.ingest.known_session.unknown == 1
    gateway.crash()


@pytest.mark.parametrize(("saved", "session_present"), [("", False), (SAVED, True), (SAVED, False)])
def test_a_new_gateway_and_one_that_knows_its_session_have_lost_nothing(
    saved: str, session_present: bool, tmp_path: Path
) -> None:
    @in_loop
    async def run() -> None:
        gateway = Gateway(tmp_path / "db", subscriptions=saved)
        await gateway.flows.deploy(from_plain(GOOD, REGISTRY), "mqtt")
        connect(gateway, session_present)
        await asyncio.sleep(0)
        assert (gateway.ingest.known_session.unknown, gateway.flows.gaps, gaps(gateway)) == (0, {}, [])
        gateway.crash()

    run()
