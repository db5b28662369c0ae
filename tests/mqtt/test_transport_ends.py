"""Connections that end, or do not come about: brokers away, wrong or silent, and stops of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from benchmarks.ports import free_port
from edgert.mqtt.clients.reconnect import ShortConnections
from edgert.mqtt.clients.transport import BrokerAddress, Tls
from edgert.mqtt.packets.packets import Will
from tests.brokers import Broker, Certificates
from tests.mqtt.transport_rig import Recorder, running
from tests.waiting import in_loop, until

MakeBroker = Callable[..., Broker]


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
            other.client.address = BrokerAddress("localhost.localdomain", broker.port, wrong)
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
    await asyncio.wait_for(receiver.client.stop(), 60.0)
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


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
@in_loop
async def test_two_clients_with_one_id_learn_what_that_may_be_though_the_broker_gives_no_reason(
    mosquitto: MakeBroker, protocol: str
) -> None:
    broker = mosquitto()
    one, two = (Recorder(broker, "twin", protocol=protocol) for _ in range(2))
    await one.client.start()
    await two.client.start()
    try:
        await until(lambda: "does another client use the id twin" in one.client.status.error, "the hint")
        await until(lambda: one.client.status.connected and one.client.status.error != "", "the hint stands")
    finally:
        await one.client.stop()
        await two.client.stop()


def test_short_connections_are_forgotten_once_one_has_lasted() -> None:
    short = ShortConnections()
    for at in (0.0, 10.0, 20.0):
        assert not short.many
        short.made(at)
        short.ended(at + 5.0)
    short.ended(30.0)  # an attempt that came to no connection
    assert short.many
    short.made(40.0)
    assert not short.lasted(99.0)
    assert short.lasted(100.0)
    assert (short.lasted(101.0), short.many) == (False, False)
