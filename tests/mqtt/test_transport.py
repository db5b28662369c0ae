"""The client over real brokers. Every wait is for a condition, with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from paho.mqtt import publish

from benchmarks.ports import free_port
from edgert.mqtt.clients.reconnect import Backoff
from edgert.mqtt.clients.transport import Address, Handlers, MqttClient, Tls
from edgert.mqtt.packets.packets import Oversized, Publish, Publishes, Subscription, Will
from edgert.mqtt.session.events import Connected, Subscribed
from edgert.mqtt.session.options import SessionOptions
from tests.brokers import Broker, Certificates
from tests.publishes import singly
from tests.waiting import in_loop, until

pytestmark = pytest.mark.integration
MakeBroker = Callable[..., Broker]
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
            Address(host, port, tls), SessionOptions(client_id, **options), handlers,
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
async def test_acknowledgements_of_an_earlier_connection_die_with_it(mosquitto: MakeBroker) -> None:
    broker = mosquitto(persistence=True)
    receiver = Recorder(broker, filters=(("t", 1),), acknowledges=False)
    async with running(receiver), running(Recorder(broker, "sender")) as sender:
        sender.client.publish("t", b"x", qos=1)
        await until(lambda: len(receiver.messages) == 1, "the message")
        owed = [(m.packet_id, m.qos) for m in receiver.messages]
        broker.restart()
        await until(lambda: len(receiver.messages) == 2, "the message again")
        assert receiver.client.acknowledge(owed, connection=1) is False
        assert receiver.client.acknowledge(owed, connection=2) is True
        assert receiver.client.status.reconnects == 1


@in_loop
async def test_broker_that_is_away_at_start_and_killed_later_is_found_again(mosquitto: MakeBroker) -> None:
    broker = mosquitto(start=False)
    receiver = Recorder(broker, filters=(("t", 1),))
    await receiver.client.start()
    await until(lambda: receiver.client.status.error, "an error in the status")
    assert f"cannot connect to 127.0.0.1:{broker.port}" in receiver.client.status.error
    broker.start()
    await until(lambda: receiver.subscribed, "the subscription")
    assert receiver.client.status.error == ""
    broker.kill()
    await until(lambda: receiver.disconnected, "the loss")
    assert "connection lost" in receiver.disconnected[0]
    broker.start()
    await until(lambda: len(receiver.subscribed) == 2, "the subscription made anew")
    assert receiver.client.status.protocol == "5"
    assert receiver.client.status.reconnects == 1
    await receiver.client.stop()
    assert len(receiver.disconnected) == 2


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
    assert sender.client.outgoing == 0
    await sender.client.stop()


@in_loop
async def test_will_is_published_when_the_connection_breaks_but_not_after_a_good_bye(mosquitto: MakeBroker) -> None:
    broker = mosquitto()
    will = Will("status", b"dead", qos=1, retain=True)
    async with running(Recorder(broker, "watcher", filters=(("status", 1),))) as watcher:
        async with running(Recorder(broker, "polite", will=will)):
            pass
        fallen = Recorder(broker, "fallen", will=will)
        async with running(fallen):
            wire = fallen.client.wire
            assert wire is not None
            wire.abort()
            await until(lambda: watcher.messages, "the Will")
        assert watcher.payloads == [b"dead"]


@in_loop
async def test_tls_checks_the_authority_and_the_name(mosquitto: MakeBroker, certificates: Certificates) -> None:
    broker = mosquitto(certificates=certificates, client_certificates=True)
    tls = Tls(certificates.path("ca.crt"), certificates.path("client.crt"), certificates.path("client.key"))
    async with running(Recorder(broker, filters=(("t", 1),), tls=tls)) as receiver:
        receiver.client.publish("t", bytes(100_000), qos=1)
        await until(lambda: receiver.payloads == [bytes(100_000)], "the message")
        assert type(receiver.payloads[0]) is bytes
    for name, wrong, host in (("stranger", Tls(), "127.0.0.1"), ("misnamed", tls, "127.0.0.2")):
        other = Recorder(broker, name, tls=wrong, host=host)
        if host != "127.0.0.1":
            other.client.address = Address("localhost.localdomain", broker.port, wrong)
        await other.client.start()
        await until(lambda other=other: other.client.status.error, "a refusal")  # type: ignore[misc]
        assert not other.connected
        await other.client.stop()


@in_loop
async def test_missing_certificate_file_is_an_error_in_the_status_not_the_end(mosquitto: MakeBroker) -> None:
    receiver = Recorder(mosquitto(start=False), tls=Tls("/nonexistent/ca.crt"))
    await receiver.client.start()
    await until(lambda: receiver.client.status.error, "an error")
    assert "No such file" in receiver.client.status.error
    await receiver.client.stop()


@in_loop
async def test_wrong_password_is_said_and_the_right_one_works(mosquitto: MakeBroker) -> None:
    broker = mosquitto(users={"board": "secret"})
    wrong = Recorder(broker, username="board", password=b"guess", protocol="5")
    await wrong.client.start()
    await until(lambda: wrong.client.status.error, "a refusal")
    assert "not authorized (0x87)" in wrong.client.status.error
    await wrong.client.stop()
    async with running(Recorder(broker, username="board", password=b"secret")) as right:
        assert right.client.status.connected


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
    broker = mosquitto()
    receiver = Recorder(broker, filters=(("t", 1),), keep_alive_s=1, ping_timeout_s=0.2)
    async with running(receiver), running(Recorder(broker, "sender")) as sender:
        receiver.client.pause()
        loop = asyncio.get_running_loop()
        began = loop.time()
        for i in range(10):
            sender.client.publish("t", b"%d" % i, qos=1)
        await until(lambda: loop.time() > began + 1.6, "longer than keep-alive and ping time-out together")
        assert receiver.messages == []
        receiver.client.resume()
        await until(lambda: len(receiver.messages) == 10, "the messages")
        assert receiver.client.status.reconnects == 0


@in_loop
async def test_silent_broker_is_given_up_after_the_ping_time_out() -> None:
    """A listener that accepts and answers CONNECT, then says nothing any more."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\x20\x03\0\0\0")
        await reader.read()
        writer.close()

    port = free_port()
    server = await asyncio.start_server(answer, "127.0.0.1", port)
    receiver = Recorder(port, keep_alive_s=1, ping_timeout_s=0.2)
    await receiver.client.start()
    await until(lambda: receiver.disconnected, "the loss")
    assert "no answer to a ping within 0.2 s" in receiver.disconnected[0]
    await until(lambda: len(receiver.connected) == 2, "the next connection")
    await receiver.client.stop()
    server.close()


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

    eager, patient = await reads(0.0), await reads(0.01)
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


@in_loop
async def test_acknowledgements_before_a_stop_reach_a_busy_broker_though_we_read_nothing_more(
    mosquitto: MakeBroker,
) -> None:
    """To close a socket in which something is unread resets it, and the broker drops what it has not read of ours."""
    broker = mosquitto()
    receiver = Recorder(broker, filters=(("t", 1),), acknowledges=False)
    async with running(Recorder(broker, "sender")) as sender:
        async with running(receiver):
            receiver.client.pause()
            for i in range(2_000):
                sender.client.publish("t", b"%d" % i, qos=1)
                if i == 999:
                    await until(lambda: len(sender.published) == 1_000, "the first messages at the broker")
                    receiver.client.resume()
                    await until(lambda: len(receiver.messages) == 1_000, "them")
                    receiver.client.pause()
            await until(lambda: len(sender.published) == 2_000, "all messages at the broker")
            with broker.frozen():
                receiver.client.acknowledge([(m.packet_id, m.qos) for m in receiver.messages])
                stop = asyncio.create_task(receiver.client.stop())
                await asyncio.wait([stop], timeout=0.2)
            await stop
        told = len(receiver.payloads)
        assert told > 1_000, "also of what comes behind the good-bye"
        receiver.client.resume()
        async with running(receiver):
            await until(lambda: len(receiver.payloads) > told and receiver.payloads[-1] == b"1999", "the last message")
        again = [int(payload) for payload in receiver.payloads[told:]]
        assert again == list(range(1_000, 2_000)), "none of the first comes again"


@in_loop
async def test_stopping_while_there_is_no_broker_ends_at_once(mosquitto: MakeBroker) -> None:
    receiver = Recorder(mosquitto(start=False))
    await receiver.client.start()
    await until(lambda: receiver.client.status.error, "a first attempt")
    await asyncio.wait_for(receiver.client.stop(), 10.0)
    assert receiver.disconnected == []


@in_loop
async def test_a_broker_that_says_good_bye_reads_nothing_and_keeps_tcp_open_is_left() -> None:
    """What waits in our buffer can never be written; closing alone would wait for it for ever."""
    said = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\x20\x03\0\0\0")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await said.wait()
        writer.write(b"\xe0\x01\x8b")  # DISCONNECT: server shutting down

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    receiver = Recorder(server.sockets[0].getsockname()[1], protocol="5", max_outgoing_bytes=1 << 26)
    async with running(receiver):
        for _ in range(32):
            receiver.client.publish("t", bytes(1 << 20), qos=1)
        await until(lambda: receiver.client.wire and not receiver.client.wire.writable, "a full buffer")
        said.set()
        await until(lambda: receiver.disconnected, "the good-bye")
        await until(lambda: len(receiver.connected) == 2, "the next connection")
    server.close()
