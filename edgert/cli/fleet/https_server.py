"""A small HTTPS server with bounds: a request per connection, so many connections, bytes and seconds, and no more."""

from __future__ import annotations

import io
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

from edgert.links.pending import PendingConnections

MOST_CONNECTIONS: Final = 32
"""One more drops the oldest of the address that has most of them."""
MOST_BYTES: Final = 32 * 1024
"""Largest request, with its head."""
WITHIN_S: Final = 20.0
"""Longest life of a connection."""


class Asked(NamedTuple):
    """A request."""

    path: str
    body: bytes
    certificate: bytes | None
    """DER, that the client has shown, and that TLS has checked."""
    address: str


class HttpsAnswer(NamedTuple):
    """The answer to a request."""

    status: int
    body: bytes


class HttpsServer(ThreadingHTTPServer):
    """`serve_forever` serves; `answer_untrusted` is called on a thread per connection."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self, host: str, port: int, context: ssl.SSLContext, answer_untrusted: Callable[[Asked], HttpsAnswer]
    ) -> None:
        """Raises `OSError` where it cannot listen."""
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.context, self.answer_untrusted = context, answer_untrusted
        self.within_s, self.clock = WITHIN_S, time.monotonic
        self._lock = threading.Lock()
        self._pending = PendingConnections[ssl.SSLSocket](MOST_CONNECTIONS)
        self._began: dict[ssl.SSLSocket, float] = {}
        super().__init__((host, port), _Handler)

    def get_request(self) -> tuple[ssl.SSLSocket, Any]:
        plain, address = self.socket.accept()
        try:
            plain.settimeout(self.within_s)
            connection = self.context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        except OSError:
            plain.close()
            raise
        with self._lock:
            gone = self._pending.enter(connection, address[0])
            self._began[connection] = self.clock()
        if gone is not None:
            _cut(gone)
        return connection, address

    def service_actions(self) -> None:
        """Called twice a second."""
        with self._lock:
            late = [one for one, began in self._began.items() if self.clock() - began >= self.within_s]
        for one in late:
            _cut(one)

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.do_handshake()
        super().finish_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._pending.leave(request)
            self._began.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that ends early, or is no TLS, is not worth a word: anybody can make one."""
        if not isinstance(sys.exception(), OSError | ValueError):
            super().handle_error(request, client_address)


def _cut(connection: ssl.SSLSocket) -> None:
    """Ends a connection whose thread waits. Not by the method of `SSLSocket`, after which it would write plain text."""
    try:
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
    except OSError:
        pass


class _Limited(io.RawIOBase):
    """The first `MOST_BYTES` of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._left = connection, MOST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._connection.recv_into(memoryview(buffer)[: self._left]) if self._left else 0
        self._left -= count
        return count


class _Handler(BaseHTTPRequestHandler):
    server: HttpsServer
    request: ssl.SSLSocket

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Limited(self.request))

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 9 and int(length) <= MOST_BYTES):
            self._send(HttpsAnswer(400, b"expected a Content-Length within the limit\n"))
            return
        body = self.rfile.read(int(length))
        if len(body) == int(length):
            self._answer(body)
        else:
            self._send(HttpsAnswer(400, b"expected the whole body\n"))

    def _answer(self, body: bytes) -> None:
        asked = Asked(self.path, body, self.request.getpeercert(True), self.client_address[0])
        self._send(self.server.answer_untrusted(asked))

    def _send(self, answer: HttpsAnswer) -> None:
        self.send_response_only(answer.status)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the base class
        """The service says what is worth it."""
