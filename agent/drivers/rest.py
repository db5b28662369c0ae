"""GET requests to the REST interface of an engine on this machine, with bounded time, size and number of values.

All requests of one look have one budget: an engine that lists 200,000 jobs, or answers a byte per second, costs what
one look may cost.
"""

from __future__ import annotations

import io
import json
import re
import socket
import time
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from typing import Any, Final, cast
from urllib.parse import urlsplit

from agent.drivers.base import DriverError
from edgert.bounded import never, read
from edgert.core.errors import show

TIMEOUT_S: Final = 2.0
LOOK_S: Final = 20.0
"""Longest time that the requests of a look take together."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of the answers of a look."""
MOST_VALUES: Final = 100_000
"""Most values in the answers of a look: an empty object of two bytes takes 64 in memory."""
HEAD_BYTES: Final = 65_536
_PATH: Final = re.compile(r"/[!-~]*")
Get = Callable[[str], Any]
"""Path, with its query -> parsed answer."""


class Rest:
    """The REST interface of `engine`. Only addresses of this machine: the engine's threads are to be here."""

    def __init__(
        self,
        engine: str,
        address: str,
        example: str,
        timeout_s: float = TIMEOUT_S,
        ended: Callable[[], bool] = never,
    ) -> None:
        """`ended`: true when no answer is wanted any more."""
        parts = urlsplit(address)
        if parts.scheme != "http" or parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise DriverError(f"{engine}: expected an address of this machine such as {example}, got {show(address)}")
        try:
            self._host, self._port = parts.hostname, parts.port or 80
        except ValueError as error:
            raise DriverError(f"{engine}: {show(address)}: {error}") from None
        self._engine, self._address, self._prefix = engine, address.rstrip("/"), parts.path.rstrip("/")
        self._timeout_s, self._ended = timeout_s, ended
        self.begin()

    def begin(self) -> None:
        """A look begins: its requests have a new budget."""
        self._bytes, self._values, self._until = MOST_BYTES, MOST_VALUES, time.monotonic() + LOOK_S

    def get(self, path: str) -> Any:
        """The answer to a GET, parsed. Raises `DriverError`."""
        where = f"{self._engine}: {self._address}{path.partition('?')[0]}"
        try:
            said = self._ask(path)
            if len(said) <= self._bytes + HEAD_BYTES:
                text = _body(said)
                values = sum(map(text.count, (b",", b"[", b"{")))
                if len(text) <= self._bytes and values <= self._values:
                    self._bytes, self._values = self._bytes - len(text), self._values - values
                    return json.loads(text)
        except (OSError, ValueError, HTTPException, RecursionError) as error:
            raise DriverError(f"{where}: {error}") from error
        raise DriverError(f"{where}: expected at most {MOST_BYTES} bytes and {MOST_VALUES} values in a look, got more")

    def _ask(self, path: str) -> bytes:
        """The bytes of an answer, or the first of too many. HTTP/1.0: the other side ends the connection after it.
        Raises `OSError`, and `ValueError` for a path that is none."""
        if not _PATH.fullmatch(path):  # names in it are the engine's own
            raise ValueError("expected printable characters in a path, got others")
        left_s = min(self._timeout_s, self._until - time.monotonic())
        if left_s <= 0.0:
            raise TimeoutError(f"expected all answers of a look within {LOOK_S:g} s, got fewer")
        host = f"[{self._host}]" if self._host == "::1" else self._host
        with socket.create_connection((self._host, self._port), left_s) as connection:
            request = f"GET {self._prefix}{path} HTTP/1.0\r\nHost: {host}:{self._port}\r\nConnection: close\r\n\r\n"
            connection.sendall(request.encode("ascii"))
            return read(connection.fileno(), left_s, self._bytes + HEAD_BYTES, self._ended)


def _body(said: bytes) -> bytes:
    """The body of an answer. Raises `ValueError` or `HTTPException` for one that is cut off, and all but status 200."""
    answer = HTTPResponse(cast(socket.socket, _Said(said)))
    answer.begin()
    if answer.status != 200:
        raise ValueError(f"HTTP status {answer.status} {show(answer.reason)}")
    return answer.read()


class _Said:
    """Bytes in place of the socket that they came from."""

    def __init__(self, said: bytes) -> None:
        self._said = said

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._said)
