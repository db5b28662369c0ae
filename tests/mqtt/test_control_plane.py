"""The control plane's connection over real brokers: which version it speaks, and what it says when there is none."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from benchmarks.ports import free_port
from edgert.core.settings.connection import Connection
from edgert.mqtt.clients import control_plane
from edgert.mqtt.clients.control_plane import ControlConnection
from edgert.mqtt.clients.message_limits import QUEUED_MESSAGES
from edgert.mqtt.clients.reconnect import Backoff
from edgert.mqtt.hang_ups.suspicion import STABLE_S
from edgert.mqtt.packets.packets import MAX_PACKET_BYTES, V311
from edgert.mqtt.session import versions
from edgert.mqtt.session.versions import PROBE_TIMEOUT_S
from tests.brokers import Broker, Certificates
from tests.mqtt.worlds import _numbers, connection
from tests.waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.integration
MakeBroker = Callable[..., Broker]
SOON = Backoff(0.2, 0.2, stable_s=STABLE_S)


@pytest.mark.parametrize("will", [None, ("wills/test", b"gone")], ids=["no will", "a will"])
def test_a_broker_that_leaves_version_5_without_an_answer_is_spoken_to_in_3_1_1_within_seconds(
    amqtt: Broker, will: tuple[str, bytes] | None
) -> None:
    """amqtt takes properties for lengths: with a Will it waits for ever for bytes, without one it breaks off."""
    began = time.monotonic()
    got: list[bytes] = []
    with connection(
        amqtt.port, probe_timeout_s=PROBE_TIMEOUT_S if will else 10 * DEADLINE_S, will=will, subscriptions=[("t", 1)],
        on_message=lambda topic, payload, request: got.append(payload),
    ) as made:  # fmt: skip
        wait_until(lambda: made.connected, "the connection")
        waited = time.monotonic() - began
        assert made.protocol == "3.1.1"
        assert waited >= PROBE_TIMEOUT_S or will is None
        made.publish("t", b"1")
        wait_until(lambda: got == [b"1"], "the message")
        assert made.connects == 1


def test_with_version_5_asked_for_nothing_else_is_tried(amqtt: Broker) -> None:
    with connection(amqtt.port, settings={"protocol": "5"}, probe_timeout_s=0.05) as made:
        end = time.monotonic() + 1.0
        wait_until(lambda: time.monotonic() > end, "twenty times the patience")
        assert (made.connected, made.protocol) == (False, "5")


def test_a_broker_that_has_spoken_5_is_waited_for_in_5(mosquitto: MakeBroker) -> None:
    """While it restarts, something may take connections and say nothing."""
    broker = mosquitto()
    with connection(broker.port, reconnect=SOON) as made:
        wait_until(lambda: made.connected, "the connection")
        made.probe_timeout_s = 0.05  # not before: a busy broker may need longer
        broker.kill()
        wait_until(lambda: not made.connected, "the loss")
        with socket.create_server(("127.0.0.1", broker.port)) as silent:
            held, _ = silent.accept()
            end = time.monotonic() + 0.5
            wait_until(lambda: time.monotonic() > end, "ten times the patience")
            assert made.protocol == "5"
            held.close()
        broker.start()
        wait_until(lambda: made.connected, "the next connection")
        assert made.protocol == "5"


def test_a_broker_that_says_nothing_is_not_said_to_hang_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = {"protocol": "5", "keep_alive_s": 1}
        with connection(silent.getsockname()[1], settings=where) as made:
            held, _ = silent.accept()
            wait_until(lambda: made.error, "what is wrong")
            held.close()
    assert made.error.endswith("; it takes connections and does not answer")


def test_stopping_in_the_middle_of_the_change_of_version_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for _ in range(5):
            made = ControlConnection(Connection(port=silent.getsockname()[1]), "test-stop", probe_timeout_s=0.01)
            made.start()
            silent.accept()[0].close()
            made.stop()
    wait_until(lambda: set(threading.enumerate()) <= before, "the end of all threads")


def test_a_change_of_version_that_meets_a_late_answer_is_no_lost_connection(
    mosquitto: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy broker answers just as the patience with it is over. `edgert deploy` gives up at the first error."""
    noted: list[str] = []
    monkeypatch.setattr(ControlConnection, "_note", lambda self, error: noted.append(error))
    with connection(mosquitto().port) as made:
        wait_until(lambda: made.connected, "the connection")
        made._versions.level = V311
        made._change_version()
        wait_until(lambda: made.connects == 2, "the next connection")
        assert (made.protocol, noted) == ("3.1.1", [])


def test_messages_that_the_broker_kept_come_apart_from_those_of_now(mosquitto: MakeBroker) -> None:
    broker = mosquitto()
    own: list[bytes] = []
    listens = threading.Event()
    with connection(
        broker.port,
        subscriptions=[("t", 1)],
        on_message=lambda topic, payload, request: own.append(payload),
        on_subscribed=listens.set,
    ) as writer:
        wait_until(listens.is_set, "the writer")
        writer.publish("t", b"kept", retain=True)
        wait_until(lambda: own, "the broker to have the message")
        kept: list[bytes] = []
        new: list[bytes] = []
        with connection(
            broker.port,
            subscriptions=[("t", 1)],
            on_message=lambda topic, payload, request: new.append(payload),
            on_retained=lambda topic, payload, request: kept.append(payload),
        ):
            wait_until(lambda: kept, "the kept message")
            writer.publish("t", b"new", retain=True)
            wait_until(lambda: new, "the new message")
            assert (kept, new) == ([b"kept"], [b"new"])


def test_no_broker_a_refusal_and_a_false_certificate_are_told_apart(
    mosquitto: MakeBroker, certificates: Certificates
) -> None:
    nobody, locked = free_port(), mosquitto(users={"u": "p"})
    secret = mosquitto(certificates=certificates)
    for port, settings, expected in (
        (nobody, {}, f"no connection to 127.0.0.1:{nobody}: Connection refused"),
        (locked.port, {}, f"the broker at 127.0.0.1:{locked.port} refused: not authorized (0x87)"),
        (secret.port, {"tls": True}, "certificate verify failed"),
    ):
        with connection(port, settings=settings) as made:
            wait_until(lambda made=made: made.error, "the error")  # type: ignore[misc]
            assert expected.lower() in made.error.lower()


def test_the_limits_of_the_brokers_connack_are_heeded(mosquitto: MakeBroker) -> None:
    broker = mosquitto(settings="max_packet_size 8000\nmax_inflight_messages 3")
    got: list[bytes] = []
    with connection(
        broker.port, subscriptions=[("t", 1)], on_message=lambda topic, payload, request: got.append(payload)
    ) as made:
        wait_until(lambda: made.connected, "the connection")
        assert made.limits.max_packet_bytes == 8000
        assert made.client.max_inflight_messages == 3
        assert not made.publish("t", bytes(20_000))
        assert "the broker's limit" in made.deliver("t", bytes(20_000))
        assert made.limits.too_large == 2
        for n in range(20):
            assert made.publish("t", b"%d" % n)
        wait_until(lambda: len(got) == 20, "all messages")
        assert (made.connects, made.limits.hung_up) == (1, 0)


def test_a_message_at_which_the_broker_hangs_up_stops_no_other(mosquitto: MakeBroker) -> None:
    """In 3.1.1 a broker does not say its limit."""
    broker = mosquitto(settings="max_packet_size 8000")
    got: list[bytes] = []
    with (
        connection(
            broker.port, subscriptions=[("t", 1)], on_message=lambda topic, payload, request: got.append(payload)
        ) as reader,
        connection(broker.port, settings={"protocol": "3.1.1"}, reconnect=SOON) as made,
    ):
        wait_until(lambda: made.connected and reader.connected, "the connections")
        assert made.limits.max_packet_bytes == MAX_PACKET_BYTES
        assert made.publish("t", b"before")
        assert made.publish("t", bytes(20_000))
        assert made.publish("t", b"after")
        wait_until(lambda: b"after" in got, "the message behind it")
        assert made.limits.hung_up == 1
        assert set(got) == {b"before", b"after"}
        assert 8_000 < made.limits.max_packet_bytes <= 20_030 // 2
        wait_until(lambda: made.client.max_inflight_messages > 1, "the window")


def test_two_clients_with_one_id_are_named_in_one_line_and_leave_each_other_time(
    mosquitto: MakeBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mosquitto 2.0 closes the connection without a reason."""
    monkeypatch.setattr(control_plane, "MOST_SHORT", 2)
    broker = mosquitto()
    one, other = (ControlConnection(Connection(port=broker.port), "edgert-g1-central") for _ in range(2))
    began = time.monotonic()
    try:
        one.start()
        wait_until(lambda: one.connected, "the first")
        other.start()
        wait_until(lambda: one.connects + other.connects >= 5, "a few turns")
    finally:
        one.stop()
        other.stop()
    assert time.monotonic() - began >= 0.5 + 0.5 + 1, "the wait grows although each CONNACK was good"
    # a broker that says that the session was taken over is quoted, of another it is guessed
    said = [
        m for r in caplog.records if re.search("another client uses? the id edgert-g1-central", m := r.getMessage())
    ]
    assert 1 <= len(said) <= 2  # once by each


class FakeBroker:
    """Answers each connection as told, and remembers which version it asked for (5, or 4: 3.1.1)."""

    def __init__(self, *answers: str | Callable[[], object]) -> None:
        self._answers = iter(answers)
        self._last = answers[-1]
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.levels: list[int] = []
        self.open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                one, _ = self._server.accept()
            except OSError:
                return
            level = one.recv(4096)[8]
            self.open.append(one)
            self.levels.append(level)  # before it is answered: what the client does next is looked at at once
            answer = next(self._answers, self._last)
            if answer == "serve":
                one.sendall(b"\x20\x03\0\0\0" if level == 5 else b"\x20\x02\0\0")
            elif answer == "refuse":
                one.sendall(b"\x20\x03\0\x84\0")
            elif answer != "silent":
                if callable(answer):
                    answer()
                one.close()

    def drop(self) -> None:
        """Ends the newest connection."""
        self.open[-1].shutdown(socket.SHUT_RDWR)
        self.open[-1].close()

    def leave(self) -> None:
        """Listens no more, and ends the newest connection."""
        self._server.shutdown(socket.SHUT_RDWR)  # else the thread in `accept` keeps it
        self._server.close()
        self.drop()

    def close(self) -> None:
        if self._server.fileno() >= 0:
            self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()
        for one in self.open:
            one.close()


@contextmanager
def fake_broker(*answers: str | Callable[[], object]) -> Iterator[FakeBroker]:
    made = FakeBroker(*answers)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    ("first", "remember_s", "then"),
    [("close", 600.0, 5), ("refuse", 600.0, 4), ("silent", 600.0, 4), ("refuse", 0.0, 5), ("silent", 0.0, 5)],
)
def test_after_a_loss_5_is_tried_again_unless_the_broker_said_lately_that_it_knows_it_not(
    monkeypatch: pytest.MonkeyPatch, first: str, remember_s: float, then: int
) -> None:
    monkeypatch.setattr(versions, "REMEMBER_S", remember_s)
    soon: Any = {"reconnect": SOON, "probe_timeout_s": 0.1 if first == "silent" else 10 * DEADLINE_S}
    with fake_broker(first, "serve") as broker, connection(broker.port, **soon) as made:
        wait_until(lambda: made.connects == 1, "the first connection")
        assert (broker.levels, made.protocol) == ([5, 4], "3.1.1")
        made.probe_timeout_s = 10 * DEADLINE_S
        broker.drop()
        wait_until(lambda: made.connects == 2, "the next connection")
        assert (broker.levels, made.protocol) == ([5, 4, then], "5" if then == 5 else "3.1.1")


def test_broker_that_was_away_in_between_is_asked_for_5_again() -> None:
    with fake_broker("close", "serve") as broker, connection(broker.port, reconnect=SOON) as made:
        wait_until(lambda: made.connects == 1, "the first connection")
        broker.leave()
        wait_until(lambda: "Connection refused" in made.error, "a failed attempt")
        assert made.protocol == "5"


def test_a_broker_that_always_breaks_off_is_not_asked_without_a_pause() -> None:
    with fake_broker("close") as broker, connection(broker.port, reconnect=Backoff(10 * DEADLINE_S, 10 * DEADLINE_S)):
        wait_until(lambda: len(broker.levels) > 1, "both versions")
        end = time.monotonic() + 0.4
        wait_until(lambda: time.monotonic() > end, "less than the pause")
        assert broker.levels == [5, 4]


def test_password_file_that_is_away_for_a_moment_does_not_end_the_connection(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("p")
    settings = {"username": "u", "password_file": str(secret)}
    with (
        fake_broker(secret.unlink, "serve") as broker,
        connection(broker.port, settings=settings, reconnect=SOON) as made,
    ):
        wait_until(lambda: str(secret) in made.error, "the reason")
        secret.write_text("p")
        wait_until(lambda: made.connected, "the connection")
        assert made.error == ""


def test_messages_over_the_limit_are_counted_go_nowhere_and_make_few_lines(
    mosquitto: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[int] = []
    with connection(
        mosquitto().port,
        subscriptions=[("t", 1)],
        on_message=lambda topic, payload, request: got.append(len(payload)),
        max_message_bytes=1_000,
    ) as made:
        wait_until(lambda: made.connected, "the connection")
        for size in (1_000, *range(1_001, 1_101), 5):
            made.publish("t", bytes(size))
        wait_until(lambda: len(got) == 2, "the others")
        assert (got, made.oversized) == ([1_000, 5], 100)
    assert sum("expected at most 1000 bytes" in record.getMessage() for record in caplog.records) == 7


def test_what_waits_for_the_broker_is_bounded() -> None:
    with fake_broker("serve") as broker, connection(broker.port) as made:
        wait_until(lambda: made.connected, "the connection")
        taken = [made.publish("t", b"x") for _ in range(QUEUED_MESSAGES + 1)]
        assert taken == [True] * QUEUED_MESSAGES + [False]


def test_that_the_broker_does_not_take_a_message_is_told() -> None:
    told: list[str] = []
    made = ControlConnection(Connection(port=free_port()), f"test-{next(_numbers)}", on_refused=told.append)
    for number, reason in enumerate(("Success", "No matching subscribers", "Not authorized"), 1):
        made._published(made.client, None, number, ReasonCode(PacketTypes.PUBACK, reason), None)
    assert told == ["Not authorized"]


def test_a_stop_waits_for_no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers = threading.Event(), threading.Event()

    def silent(*_arguments: Any, **_options: Any) -> Any:
        asked.set()
        answers.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    before = set(threading.enumerate())
    made = ControlConnection(Connection(host="broker.example"), "test-stop")
    made.start()
    try:
        assert asked.wait(60.0)
        stopping = threading.Thread(target=made.stop, kwargs={"timeout_s": 0.1})
        stopping.start()
        stopping.join(60.0)
        assert not stopping.is_alive()
    finally:
        answers.set()
    wait_until(lambda: set(threading.enumerate()) <= before, "the end of all threads")


def test_a_broker_that_takes_less_after_a_restart_gets_no_larger_message_that_waited(mosquitto: MakeBroker) -> None:
    broker = mosquitto()
    with connection(broker.port, reconnect=SOON) as made:
        wait_until(lambda: made.connected, "the connection")
        with broker.frozen():
            for payload in (b"before", bytes(20_000), b"after"):
                assert made.publish("t", payload)
            broker.kill()
        with (broker.folder / "mosquitto.conf").open("a") as settings:
            settings.write("max_packet_size 8000\n")
        broker.start()
        wait_until(lambda: made.connects > 1 and not made.client.unacknowledged(), "the messages that waited")
        assert (made.connects, made.limits.too_large, made.limits.hung_up) == (2, 1, 0)
