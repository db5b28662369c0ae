"""The client over real brokers. Every wait is for a condition, with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from paho.mqtt import publish

from edgert.mqtt.packets.packets import Publishes
from tests.brokers import Broker
from tests.mqtt.transport_rig import Recorder, running
from tests.waiting import in_loop, until

pytestmark = pytest.mark.integration
MakeBroker = Callable[..., Broker]


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@in_loop
async def test_messages_arrive_in_order(mosquitto: MakeBroker, protocol: str, qos: int) -> None:
    broker = mosquitto()
    async with running(Recorder(broker, filters=(("a/+", qos),), protocol=protocol)) as receiver:
        assert receiver.connected[0].protocol == protocol
        count = 50
        messages: Any = [("a/b", b"%d" % i, qos, False) for i in range(count)]
        await asyncio.to_thread(publish.multiple, messages, port=broker.port)
        await until(lambda: len(receiver.messages) == count, "all messages")
        assert receiver.payloads == [b"%d" % i for i in range(count)]
        assert {(m.topic, m.qos, m.dup, m.subscription_ids) for m in receiver.messages} == {
            ("a/b", qos, False, (1,) if protocol == "5" else ())
        }
        if qos == 2:
            await until(lambda: len(receiver.released) == count, "PUBREL for each")


@in_loop
async def test_three_one_one_stops_at_the_brokers_window_of_20_and_five_does_not(mosquitto: MakeBroker) -> None:
    broker = mosquitto()
    old = Recorder(broker, "old", filters=(("t", 1),), acknowledges=False, protocol="3.1.1")
    new = Recorder(broker, "new", filters=(("t", 1),), acknowledges=False, protocol="5")
    async with running(old), running(new), running(Recorder(broker, "sender")) as sender:
        for i in range(100):
            sender.client.publish("t", b"%d" % i, qos=1)
        await until(lambda: len(new.messages) == 100, "all messages without one PUBACK")
        assert len(old.messages) == 20
        old.client.acknowledge([(m.packet_id, m.qos) for m in old.messages[:10]])
        await until(lambda: len(old.messages) >= 30, "ten more")  # 2.0.11 then sends all that is queued


@in_loop
async def test_what_was_not_acknowledged_comes_again_with_dup_after_a_reconnect(mosquitto: MakeBroker) -> None:
    broker = mosquitto()
    async with running(Recorder(broker, "sender")) as sender:
        first = Recorder(broker, "gateway", filters=(("t", 1),), acknowledges=False)
        async with running(first):
            for i in range(5):
                sender.client.publish("t", b"%d" % i, qos=1)
            await until(lambda: len(first.messages) == 5, "five messages")
            first.client.acknowledge([(m.packet_id, m.qos) for m in first.messages[:2]])
        again = Recorder(broker, "gateway", filters=(("t", 1),))
        async with running(again):
            assert again.connected[0].session_present
            await until(lambda: len(again.messages) == 3, "the three others")
            assert again.payloads == [b"2", b"3", b"4"]
            assert all(m.dup and m.subscription_ids == (1,) for m in again.messages)


@in_loop
async def test_messages_of_ours_wait_for_the_broker_and_arrive(mosquitto: MakeBroker) -> None:
    broker = mosquitto(start=False)
    sender = Recorder(broker, "sender", filters=(("t", 1),))
    await sender.client.start()
    ids = [sender.client.publish("t", b"%d" % i, qos=1) for i in range(50)]
    broker.start()
    await until(lambda: len(sender.published) == 50, "PUBACK for each")
    assert {packet_id for packet_id, _ in sender.published} == set(ids)
    assert all(reason < 0x80 for _, reason in sender.published)
    assert len(sender.client.session.outgoing) == 0
    await sender.client.stop()


@in_loop
async def test_auto_falls_back_to_three_one_one_with_a_broker_that_does_not_know_five(amqtt: Broker) -> None:
    async with running(Recorder(amqtt, filters=(("t", 1),))) as receiver:
        assert receiver.connected[0].protocol == "3.1.1"
        assert receiver.client.status.protocol == "3.1.1"
        receiver.client.publish("t", b"hello", qos=1)
        await until(lambda: receiver.payloads == [b"hello"], "the message")


@in_loop
async def test_packet_over_the_limit_is_skipped_acknowledged_and_the_connection_lives_on(mosquitto: MakeBroker) -> None:
    broker = mosquitto()
    receiver = Recorder(broker, filters=(("t", 1),), max_packet_bytes=100_000)
    async with running(receiver), running(Recorder(broker, "sender", max_outgoing_bytes=1 << 25)) as sender:
        for payload in (b"before", bytes(10_000_000), b"after"):
            sender.client.publish("t", payload, qos=1)
        await until(lambda: receiver.payloads == [b"before", b"after"], "the others")
        (skipped,) = receiver.oversized
        assert (skipped.topic, skipped.qos) == ("t", 1)
        assert skipped.size > 10_000_000
        assert receiver.client.status.reconnects == 0
        assert receiver.client.status.oversized == 1


@in_loop
async def test_a_callback_that_raises_is_counted_and_the_connection_lives_on(mosquitto: MakeBroker) -> None:
    broker = mosquitto()
    receiver = Recorder(broker, filters=(("t", 0),))
    good = receiver.client.handlers.on_messages
    assert good is not None

    def bad(_messages: Publishes) -> None:
        raise ZeroDivisionError("on purpose")

    receiver.client.handlers.on_messages = bad
    async with running(receiver):
        receiver.client.publish("t", b"1")
        await until(lambda: receiver.client.status.callback_errors == 1, "the count")
        assert "on purpose" in receiver.client.status.error
        receiver.client.handlers.on_messages = good
        receiver.client.publish("t", b"2")
        await until(lambda: receiver.payloads == [b"2"], "the next message")
        assert receiver.client.status.reconnects == 0


@in_loop
async def test_paused_client_reads_nothing_and_keeps_its_connection(mosquitto: MakeBroker) -> None:
    broker, loop = mosquitto(), asyncio.get_running_loop()

    async def kept() -> bool:
        receiver = Recorder(broker, filters=(("t", 1),), keep_alive_s=2, ping_timeout_s=1.0)
        async with running(receiver), running(Recorder(broker, "sender")) as sender:
            receiver.client.pause()
            began = loop.time()
            for i in range(10):
                sender.client.publish("t", b"%d" % i, qos=1)
            await until(lambda: loop.time() > began + 3.4, "longer than keep-alive and ping time-out together")
            if receiver.disconnected:
                return False
            assert receiver.messages == []
            receiver.client.resume()
            await until(lambda: receiver.disconnected or len(receiver.messages) == 10, "the messages")
            return not receiver.disconnected

    for _ in range(5):  # the broker leaves who stands still for a second when a ping is due
        if await kept():
            return
    pytest.fail("it is lost each time")


@in_loop
async def test_at_a_high_rate_many_messages_come_per_read_and_at_a_low_one_none_waits(mosquitto: MakeBroker) -> None:
    broker = mosquitto()

    async def reads(budget_s: float) -> float:
        receiver = Recorder(broker, f"r{budget_s}", filters=(("t", 0),), budget_s=budget_s)
        async with running(receiver), running(Recorder(broker, f"s{budget_s}")) as sender:
            for _ in range(200):
                for _ in range(10):
                    sender.client.publish("t", bytes(100))
                await asyncio.sleep(0.002)
            await until(lambda: len(receiver.messages) == 2000, "all messages")
            return len(receiver.messages) / len(receiver.calls)

    eager, patient = await reads(0.0), await reads(0.1)
    assert patient > 2 * eager


def test_plain_asyncio_serves_as_well(mosquitto: MakeBroker) -> None:
    async def main() -> None:
        async with running(Recorder(mosquitto(), filters=(("t", 1),))) as receiver:
            receiver.client.publish("t", b"x", qos=1)
            await until(lambda: receiver.payloads == [b"x"], "the message")

    asyncio.run(main())


@in_loop
async def test_acknowledgements_of_one_turn_of_the_loop_are_one_write(mosquitto: MakeBroker) -> None:
    broker = mosquitto()
    receiver = Recorder(broker, filters=(("t", 1),), acknowledges=False)
    async with running(receiver), running(Recorder(broker, "sender")) as sender:
        for i in range(10):
            sender.client.publish("t", b"%d" % i, qos=1)
        await until(lambda: len(receiver.messages) == 10, "the messages")
        wire, writes = receiver.client.wire, list[bytes]()
        assert wire is not None
        wire.write = writes.append  # type: ignore[method-assign, assignment]
        for message in receiver.messages:
            receiver.client.acknowledge([(message.packet_id, message.qos)])
        await until(lambda: writes, "a write")
        assert [len(data) for data in writes] == [40]
