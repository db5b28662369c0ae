"""The central connection's window after a reconnect is that of the new CONNACK, also for what is sent again."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any

import pytest

from edgert.mqtt.clients.reconnect import Backoff
from edgert.mqtt.packets.decode import Decoder
from edgert.mqtt.packets.packets import V5, Publish
from tests.mqtt.worlds import connection
from tests.waiting import wait_until

MESSAGES, SMALL = 20, 3


class Broker:
    """Takes connections one after the other, each with a Receive Maximum, and acknowledges only the first message."""

    def __init__(self, *windows: int) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.sent: list[int] = []
        """Messages of each connection."""
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, args=(windows,), daemon=True)
        self._thread.start()

    def _serve(self, windows: tuple[int, ...]) -> None:
        for window in windows:
            one, _ = self._listening.accept()
            self._connections.append(one)
            one.recv(1_000)
            self.sent.append(0)
            one.sendall(b"\x20\x06\x00\x00\x03\x21" + window.to_bytes(2, "big"))
            decoder = Decoder(V5)
            with suppress(OSError):  # the test has ended
                while data := one.recv(4_096):
                    out: list[Any] = []
                    decoder.feed_untrusted(data, out)
                    messages = [m for run in out if isinstance(run, list) for m in run if isinstance(m, Publish)]
                    if messages and self.sent == [0]:
                        one.sendall(b"\x40\x02" + messages[0].packet_id.to_bytes(2, "big"))
                    self.sent[-1] += len(messages)

    def hang_up(self) -> None:
        self._connections[-1].shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for one in (*self._connections, self._listening):
            one.close()


@pytest.mark.parametrize(("first", "second"), [(1_000, SMALL), (SMALL, 1_000)])
def test_messages_that_are_sent_again_heed_the_window_of_the_new_connection(first: int, second: int) -> None:
    broker = Broker(first, second)
    try:
        # a connection is stable at once and has had an answer: the hang-up is no reason to suspect a message
        with connection(broker.port, reconnect=Backoff(0.01, 0.02, 0.0)) as made:
            wait_until(lambda: made.connected, "the connection")
            for n in range(MESSAGES):
                assert made.publish("t", b"%d" % n)
            wait_until(lambda: broker.sent == [min(first + 1, MESSAGES)], "the first window")
            broker.hang_up()
            wait_until(lambda: broker.sent[1:] == [min(second, MESSAGES - 1)], "the second window")
            made.publish("t", b"one more")
            made.client.loop_misc()
            assert broker.sent[1] <= second
    finally:
        broker.close()
