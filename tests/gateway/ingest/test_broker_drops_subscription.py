"""The subscription to the broker's count of drops: it disturbs no message, no index and no flow."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from edgert.core.settings.gateway import Sensors
from edgert.flow.document import from_plain
from edgert.mqtt.packets.packets import Publish, PublishRun
from edgert.mqtt.session.events import Connected, Subscribed
from edgert.operators.registry import REGISTRY
from tests.gateway.ingest.granting import Granting
from tests.gateway.whole_gateway import Gateway, document
from tests.waiting import in_loop, until

TOPIC = Sensors().drops_topic


def sensor(qos: int = 0, packet_id: int = 0, ids: tuple[int, ...] = ()) -> Publish:
    return Publish("x/a", b'{"time": 1700000000}', qos, False, False, packet_id, ids)


def value(number: int, *, retain: bool = False, ids: tuple[int, ...] = ()) -> Publish:
    return Publish(TOPIC, b"%d" % number, 0, retain, False, 0, ids)


def reads_sys(topic: str = "$SYS/#", qos: int = 1) -> Any:
    operators = {
        "in": {"type": "mqtt_source", "topic": topic, "codec": "json", "qos": qos},
        "minute": {"type": "tumbling_window", "input": "in", "size_s": 10, "aggregates": {"n": "count()"}},
        "out": {"type": "ship", "input": "minute"},
    }
    return from_plain({"name": "sys", "operators": operators}, REGISTRY)


def connected(gateway: Gateway, protocol: str, in_use: Iterable[str] = ()) -> Granting:
    """With a session of an earlier connection."""
    client = Granting(gateway, protocol, in_use)
    gateway.ingest.client = gateway.ingest.subscriber.client = client  # type: ignore[assignment]
    gateway.ingest.connected(Connected(True, protocol, 1, "id", 65_535))
    return client


def sent(client: Granting) -> dict[str, tuple[int, int | None, int]]:
    """Filter → QoS, identifier, retain handling of what was subscribed last; what was given up is not in it."""
    return {f: (s.qos, s.subscription_id, s.retain_handling) for f, s in client.subscriptions.items()}


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
@in_loop
async def test_hearing_it_changes_no_count_of_messages_no_index_and_no_flow(tmp_path: Path, protocol: str) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    client = connected(gateway, protocol)
    await until(lambda: TOPIC in sent(client), "the subscription")
    found = sent(client)
    assert {f: (qos, retained) for f, (qos, _, retained) in found.items()} == {"x/+": (1, 2), TOPIC: (0, 0)}
    mine, other = ((n,) if n else () for n in (found[TOPIC][1], found["x/+"][1]))
    assert mine != other or protocol == "3.1.1"
    inbox, counters = gateway.ingest.inbox, gateway.ingest.inbox.counters
    gateway.ingest.feed([value(1_000, retain=True, ids=mine)])
    assert (counters.messages, counters.bytes, counters.unrouted, counters.retained_ignored) == (0, 0, 0, 0)
    run = PublishRun([TOPIC, TOPIC], [b"1001", b"1002"], mine)
    gateway.ingest.feed([sensor(1, 5, other), value(1_000, ids=mine), sensor(0, 0, other), run])
    assert gateway.ingest.drops.dropped == 2
    assert (counters.messages, counters.bytes) == (2, 2 * len(sensor().payload))
    assert (inbox.next_index, len(inbox.owed), counters.unrouted) == (2, 1, 0)
    gateway.crash()


@pytest.mark.parametrize("topic", ["$SYS/#", TOPIC])
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
@in_loop
async def test_a_flow_that_reads_the_topic_itself_goes_on_as_before(tmp_path: Path, protocol: str, topic: str) -> None:
    gateway = Gateway(tmp_path / "db")
    client = connected(gateway, protocol)
    await until(lambda: TOPIC in sent(client), "the subscription")
    await gateway.flows.deploy(reads_sys(topic), "mqtt")
    await until(lambda: sent(client).get(topic, (0,))[0] == 1, "the subscription of the flow")
    found = sent(client)
    own = protocol == "5" or topic == TOPIC
    assert set(found) == ({TOPIC, topic} if own else {topic}), "3.1.1: no two that overlap"
    copies = {n for _, n, _ in found.values()}
    rows = gateway.flows.runs["sys"].stages["in"].instance
    before = gateway.ingest.inbox.counters.messages
    for number in (10, 13):  # a broker sends a copy by each subscription
        gateway.ingest.feed([value(number, ids=(n,) if n else ()) for n in copies])
    assert gateway.pool.wait_empty(gateway.flows.runs["sys"].all, 60.0)
    assert gateway.ingest.drops.dropped == 3
    assert rows.counters.rows_in == 2
    assert gateway.ingest.inbox.counters.messages - before == 2
    await gateway.flows.remove("sys")
    await until(lambda: set(sent(client)) == {TOPIC} and sent(client)[TOPIC][0] == 0, "what is left")
    gateway.ingest.feed([value(15, ids=(n,) if (n := sent(client)[TOPIC][1]) else ())])
    assert gateway.ingest.drops.dropped == 5
    gateway.crash()


@in_loop
async def test_a_redelivery_to_a_flow_that_shares_the_subscription_is_no_old_count(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(reads_sys(TOPIC), "mqtt")
    client = connected(gateway, "5")
    await until(lambda: TOPIC in sent(client), "the subscription")
    ids = (sent(client)[TOPIC][1] or 0,)
    for number, packet_id in ((100, 1), (150, 2)):
        gateway.ingest.feed([Publish(TOPIC, b"%d" % number, 1, False, False, packet_id, ids)])
    for number, packet_id in ((100, 1), (150, 2)):
        gateway.ingest.feed([Publish(TOPIC, b"%d" % number, 1, False, True, packet_id, ids)])
    assert gateway.ingest.drops.dropped == 50
    gateway.crash()


@in_loop
async def test_a_subscription_refused_for_its_packet_identifier_is_asked_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = Gateway(tmp_path / "db")
    ingest = gateway.ingest
    ingest.subscriber.ask_again_s = 0.0
    await gateway.flows.deploy(document(), "mqtt")
    client = connected(gateway, "5", in_use=("x/+", TOPIC))
    await until(lambda: '"granted": 1' in ingest.drops.to_save(), "the topic with what it drops, granted")
    assert client.in_use == set()
    assert not ingest.subscriber.grants.refused
    assert "subscription to x/+: packet identifier in use" in caplog.text, "it was refused first"
    assert "nothing has come" in ingest.drops.unseen
    gateway.crash()


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
@in_loop
async def test_a_refusal_is_no_error_of_the_gateway_but_that_of_a_flow_is(tmp_path: Path, protocol: str) -> None:
    gateway = Gateway(tmp_path / "db")
    ingest = gateway.ingest
    client = connected(gateway, protocol)
    await until(lambda: TOPIC in sent(client), "the subscription")
    ingest.subscriber.answered(Subscribed(1, ((TOPIC, 0x80),)))
    assert not ingest.subscriber.grants.refused
    assert "refused" in ingest.drops.unseen
    await gateway.flows.deploy(reads_sys(TOPIC), "mqtt")
    ingest.subscriber.answered(Subscribed(2, ((TOPIC, 0x80),)))
    assert list(ingest.subscriber.grants.refused) == [TOPIC]
    ingest.subscriber.answered(Subscribed(3, ((TOPIC, 1),)))
    assert not ingest.subscriber.grants.refused
    assert "refused" not in ingest.drops.unseen
    gateway.crash()


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
@in_loop
async def test_switched_off_it_is_not_asked_and_what_an_earlier_run_asked_is_taken_back(
    tmp_path: Path, protocol: str
) -> None:
    gateway = Gateway(tmp_path / "db")
    client = connected(gateway, protocol)
    await until(lambda: TOPIC in sent(client), "the subscription")
    saved = gateway.ingest.subscriptions.dump()
    gateway.crash()
    after = Gateway(tmp_path / "db", Sensors(drops_topic=""))
    after.ingest.subscriptions.load(saved)
    client = connected(after, protocol)
    await until(lambda: client.given_up == [TOPIC], "that it is taken back")
    assert not sent(client)
    after.crash()
