"""The asking end of a control socket: a blocking client for the command line, and one for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from edgert.control.messages import (
    MAX_ANSWER_BYTES,
    MAX_REQUEST_BYTES,
    Answer,
    ControlError,
    Splitter,
    VerbError,
    answer_untrusted,
    pack_request,
)
from edgert.control.socket import READ_BYTES, address_of
from edgert.core.errors import PayloadError

TIMEOUT_S: Final = 10.0
"""Default of the longest wait for an answer."""
RETRY_S: Final = 0.01
"""Pause between two tries to connect to a server that is busy."""
_CLOSED: Final = "the connection was closed at the other end: the program ended, or we may not use this socket"


class BlockingClient:
    """One connection, one request at a time; for the command line."""

    def __init__(self, path: str | Path, timeout_s: float = TIMEOUT_S) -> None:
        """Raises `ControlError` if no process serves `path`."""
        self._path, self._timeout_s = str(path), timeout_s
        self._splitter = Splitter(MAX_ANSWER_BYTES)
        self._last = 0
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.settimeout(timeout_s)
        try:
            self._connect(time.monotonic() + timeout_s)
        except OSError as error:
            self._sock.close()
            raise _unreachable(self._path, error) from error

    def _connect(self, ends: float) -> None:
        with address_of(self._path) as address:
            while True:
                try:
                    return self._sock.connect(address)
                except BlockingIOError:  # the server has not looked at many that came before
                    if time.monotonic() > ends:
                        raise
                    time.sleep(RETRY_S)

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._sock.close()

    def call(self, verb: str, args: Mapping[str, Any] | None = None) -> Any:
        """The result of a verb. Raises `VerbError` where it was refused, `ControlError` without an answer in time;
        the connection is of no more use then."""
        self._last += 1
        ends = time.monotonic() + self._timeout_s
        try:
            self._sock.settimeout(self._timeout_s)
            request = pack_request(self._last, verb, args or {})
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the reason may stand in an answer
                self._sock.sendall(request)
            return _result(self._path, self._last, self._receive(ends))
        except TimeoutError:
            raise ControlError(f"{self._path}: no answer to {verb} within {self._timeout_s:g} s") from None
        except OSError as error:
            raise ControlError(f"{self._path}: the connection broke: {error.strerror or error}") from error
        except PayloadError as error:
            raise ControlError(f"{self._path}: {error}") from error

    def _receive(self, ends: float) -> Answer:
        while True:
            left = ends - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._sock.settimeout(left)
            try:
                chunk = self._sock.recv(READ_BYTES)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise ControlError(f"{self._path}: {_CLOSED}")
            for body in self._splitter.feed_untrusted(chunk):
                return answer_untrusted(body)


def call(path: str | Path, verb: str, args: Mapping[str, Any] | None = None, timeout_s: float = TIMEOUT_S) -> Any:
    """The result of one verb, over a connection of its own. Raises as `BlockingClient`."""
    with BlockingClient(path, timeout_s) as client:
        return client.call(verb, args)


class ControlClient:
    """One connection for many requests at a time, on one loop. It connects with the first request, and anew with the
    first after a connection was lost."""

    def __init__(
        self, path: str | Path, timeout_s: float = TIMEOUT_S, max_request_bytes: int = MAX_REQUEST_BYTES
    ) -> None:
        """`max_request_bytes`: the longest request that the program at the other end takes."""
        self.path = str(path)
        self._timeout_s, self._max_request_bytes = timeout_s, max_request_bytes
        self._last = 0
        self._connecting = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Answer]] = {}

    async def call(self, verb: str, args: Mapping[str, Any] | None = None, timeout_s: float | None = None) -> Any:
        """The result of a verb. Raises `VerbError` if the verb was refused. Raises `ControlError` if no answer comes in
        time, or the connection is lost: the request may have been carried out then."""
        longest_s = self._timeout_s if timeout_s is None else timeout_s
        number = self._last = self._last + 1
        data = pack_request(number, verb, args or {}, self._max_request_bytes)
        try:
            async with asyncio.timeout(longest_s):
                writer = await self._connected()
                future = self._waiting[number] = asyncio.get_running_loop().create_future()
                writer.write(data)
                await writer.drain()
                return _result(self.path, number, await future)
        except TimeoutError:
            raise ControlError(f"{self.path}: no answer to {verb} within {longest_s:g} s") from None
        except OSError as error:
            raise _unreachable(self.path, error) from error
        finally:
            self._waiting.pop(number, None)

    async def _connected(self) -> asyncio.StreamWriter:
        async with self._connecting:
            if self._writer is None:
                with address_of(self.path) as address:
                    reader, self._writer = await _connection(address)
                self._listening = asyncio.create_task(self._listen(reader, self._writer))
            return self._writer

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        splitter, why = Splitter(MAX_ANSWER_BYTES), _CLOSED
        try:
            while chunk := await reader.read(READ_BYTES):
                for body in splitter.feed_untrusted(chunk):
                    answer = answer_untrusted(body)
                    if not answer.id:
                        why = answer.error
                    if (future := self._waiting.get(answer.id)) is not None and not future.done():
                        future.set_result(answer)
        except ConnectionResetError:
            pass
        except (OSError, PayloadError) as error:
            why = str(error)
        finally:
            writer.close()
            if self._writer is writer:
                self._writer = None
                for future in self._waiting.values():
                    if not future.done():
                        future.set_exception(ControlError(f"{self.path}: {why}"))

    async def close(self) -> None:
        """Ends the connection; requests without an answer raise `ControlError`."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)


async def _connection(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_unix_connection(address)
        except BlockingIOError:  # the server has not looked at many that came before
            await asyncio.sleep(RETRY_S)


def _result(path: str, number: int, answer: Answer) -> Any:
    if not answer.id:
        raise ControlError(f"{path}: {answer.error}")
    if answer.id != number:
        raise ControlError(f"{path}: expected the answer to request {number}, got that to {answer.id}")
    if not answer.ok:
        raise VerbError(answer.error)
    return answer.result


def _unreachable(path: str, error: OSError) -> ControlError:
    reason = error.strerror or str(error)
    if isinstance(error, BlockingIOError):
        reason = "the program does not take connections: it hangs, or is overloaded"
    elif isinstance(error, FileNotFoundError):
        reason = "there is no such socket: is the program running?"
    elif isinstance(error, ConnectionRefusedError):
        reason = "no program serves it any more; start it again"
    elif isinstance(error, PermissionError):
        reason = "expected root, the program's own user or a member of the socket's group"
    return ControlError(f"{path}: {reason}")
