"""What `publish` sinks give out and the sensors' broker does not take, or does not say that it took, is counted."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from unittest.mock import call, patch

import pytest

from edgert.core.results.results import DropsBatch, unpack_result_untrusted
from edgert.mqtt.hang_ups.rules import HUNG_UP, TOPIC_REFUSED
from edgert.mqtt.packets.packets import MAX_PACKET_ID
from edgert.operators.base.logic import Message
from edgert.runtime.instance.report import lost_of
from gateway.ingest.publishing import SENDER_BLAMES
from gateway.status.conditions import conditions
from tests.gateway.whole_gateway import Gateway
from tests.gateway.worlds import alarms
from tests.status_example import example_status
from tests.waiting import in_loop


async def with_alarms(path: Path, count: int) -> Gateway:
    """Whose broker is away: `count` alarms wait for it, with packet ids from 1 on."""
    gateway = Gateway(path)
    gateway.ingest.publishing.start(gateway.ingest.client)
    gateway.pool._send = gateway.ingest.publishing.send
    await gateway.flows.deploy(alarms(), "mqtt")
    for number in range(1, count + 1):
        gateway.feed(number, 1.0 + number)
    await asyncio.sleep(0)  # lets them be published
    assert len(gateway.ingest.client.session.outgoing) == count
    return gateway


def not_taken(gateway: Gateway) -> dict[str, int]:
    dropped = gateway.flows.runs["f"].drops()
    return {reason: count for (_, reason), count in dropped.items()}


def answered(gateway: Gateway, which: int, reason: int) -> None:
    """PUBACK of a message, the first being 1."""
    on_published = gateway.ingest.client.handlers.on_published
    assert on_published
    on_published(MAX_PACKET_ID + 1 - which, reason)


@in_loop
async def test_a_message_that_the_broker_refuses_is_counted_with_the_flow_and_why(
    tmp_path: Path,
) -> None:
    gateway = await with_alarms(tmp_path / "db", 3)
    answered(gateway, 1, 0x87)
    answered(gateway, 2, 0x00)
    answered(gateway, 3, 0x10)  # nobody subscribes to it: the broker has it all the same
    answered(gateway, 1, 0x87)  # of another message than ours
    assert not_taken(gateway) == {"not sent": 1}
    found = [lost_of(stage) for stage in gateway.flows.runs["f"].stages.values()]
    assert [*filter(None, found)] == [{"not sent": "to 'alarm/a': not authorized (0x87)"}]
    gateway.crash()


@in_loop
async def test_what_the_broker_has_not_acknowledged_at_the_end_is_counted_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = await with_alarms(tmp_path / "db", 5)
    answered(gateway, 1, 0x00)
    with caplog.at_level(logging.WARNING):
        gateway.ingest.publishing.give_up()
    assert "4 messages of publish sinks were not acknowledged by the broker" in caplog.text
    assert not_taken(gateway) == {"not acknowledged": 4}
    gateway.checkpointer.drops.ending = True
    assert await gateway.checkpoint()
    said = [
        unpack_result_untrusted(entry.payload)
        for stream, _ in gateway.database.outbox_streams()
        for entry in gateway.database.outbox(*stream, 0, 100)
    ]
    drops = [drop for batch in said if isinstance(batch, DropsBatch) for drop in batch.drops]
    assert [(reason, count) for _, reason, count in drops] == [("not acknowledged", 4)]
    gateway.crash()


@in_loop
async def test_where_all_was_acknowledged_the_end_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = await with_alarms(tmp_path / "db", 1)
    answered(gateway, 1, 0x00)
    gateway.ingest.publishing.give_up()
    assert (not_taken(gateway), caplog.text) == ({}, "")
    gateway.crash()


@in_loop
async def test_a_message_goes_out_as_its_sink_and_a_dead_letter_as_its_reason_says(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    client, publishing = gateway.ingest.client, gateway.ingest.publishing
    publishing.start(client)
    await gateway.flows.deploy(alarms(), "mqtt")
    instance = gateway.flows.runs["f"].all[0]
    with patch.object(client, "publish", return_value=0) as publish:
        client.status.protocol = "5"
        publishing.send(instance, [("t", b"p", 0, True, ""), Message("bad", b"row", 1, reason="in: no")])
        await asyncio.sleep(0)
    told = {"user_property": [("reason", "in: no")]}
    assert publish.call_args_list == [call("t", b"p", 0, True, None), call("bad", b"row", 1, False, told)]


async def with_new_topics(path: Path, count: int) -> Gateway:
    """Whose broker is away: `count` messages wait for it, each with a topic of its own."""
    gateway = await with_alarms(path, 0)
    instance = gateway.flows.runs["f"].all[0]
    gateway.ingest.publishing.send(instance, [(f"alarm/d{n}", b"", 1, False, "") for n in range(count)])
    await asyncio.sleep(0)
    assert len(gateway.ingest.client.session.outgoing) == count
    return gateway


def gives_up(gateway: Gateway, topic: str, packet_id: int) -> None:
    """As `hung_up`, and the session holds the message no more."""
    gateway.ingest.client.session.give_up([packet_id])
    hung_up(gateway, topic, packet_id)


def hung_up(gateway: Gateway, topic: str, packet_id: int) -> None:
    """As the session tells it: the topic is refused from its second message on."""
    client = gateway.ingest.client
    client.session.hang_ups.topics.blamed(topic, client.clock())
    gateway.ingest.publishing.answered(packet_id, HUNG_UP)


@in_loop
async def test_a_topic_at_which_the_broker_hangs_up_is_named_with_flow_and_operator(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = await with_alarms(tmp_path / "db", 3)
    assert gateway.ingest.publishing.refused() == []
    for which in (1, 2):
        hung_up(gateway, "alarm/a", MAX_PACKET_ID + 1 - which)
    answered(gateway, 3, TOPIC_REFUSED)
    assert not_taken(gateway) == {"not sent": 3}
    assert "hung up at a message of flow f (operator tell)" in caplog.text
    assert "nothing is sent to that topic for 60 s" in caplog.text
    (told,) = gateway.ingest.publishing.refused()
    assert (told["flow"], told["operator"], told["topic"]) == ("f", "tell", "alarm/a")
    assert 59.0 < told["for_s"] <= 60.0
    status = {"ingest": {**example_status()["ingest"], "refused_topics": [told]}}
    sensors = conditions(status)[0]
    assert (sensors.level, sensors.reason) == (
        "warning", "nothing is sent to alarm/a (flow f, operator tell): the broker hangs up at it"
    )  # fmt: skip
    gateway.crash()


@in_loop
async def test_an_operator_with_ever_new_topics_at_which_the_broker_hangs_up_is_refused_with_all_that_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = await with_new_topics(tmp_path / "db", SENDER_BLAMES + 100)
    client, publishing = gateway.ingest.client, gateway.ingest.publishing
    for which in range(SENDER_BLAMES):
        gives_up(gateway, f"alarm/d{which}", MAX_PACKET_ID - which)
    assert {"flow": "f", "operator": "tell", "topic": "#", "for_s": 60.0} in publishing.refused()
    assert len(client.session.outgoing) == 0
    assert not_taken(gateway)["not sent"] == SENDER_BLAMES + 100
    instance = gateway.flows.runs["f"].all[0]
    publishing.send(instance, [("alarm/later", b"", 1, False, "")])
    await asyncio.sleep(0)
    assert len(client.session.outgoing) == 0
    assert not_taken(gateway)["not sent"] == SENDER_BLAMES + 101
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2
    assert "100 messages of it that waited are counted too" in errors[1]
    gateway.crash()


@in_loop
async def test_an_operator_is_not_refused_for_one_topic_at_which_the_broker_hangs_up_again_and_again(
    tmp_path: Path,
) -> None:
    gateway = await with_alarms(tmp_path / "db", 2 * SENDER_BLAMES)
    for which in range(2 * SENDER_BLAMES):
        gives_up(gateway, "alarm/a", MAX_PACKET_ID - which)
    assert [one["topic"] for one in gateway.ingest.publishing.refused()] == ["alarm/a"]
    gateway.crash()


@in_loop
async def test_a_topic_of_qos_0_at_which_the_broker_hangs_up_is_named_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = await with_alarms(tmp_path / "db", 0)
    client = gateway.ingest.client
    for _ in range(2):
        client.session.hang_ups.blame_topic("alarm/a", client.clock())
    for number in (1, 2):
        gateway.feed(number, 1.0 + number)
    await asyncio.sleep(0)
    (told,) = gateway.ingest.publishing.refused()
    assert (told["flow"], told["operator"], told["topic"]) == ("f", "tell", "alarm/a")
    assert caplog.text.count("hung up at a message of flow f (operator tell)") == 1
    assert not_taken(gateway)["not sent"] == 2
    gateway.crash()
