"""The serving end of a control socket.

The kernel tells who connects. Root, our own user and members of the socket's group may use it; the file's mode says the
same. A client that sends rubbish, or stops within a frame, loses its connection and costs no other client anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import socket
import stat
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from edgert.control.messages import (
    MAX_REQUEST_BYTES,
    ControlError,
    Request,
    Splitter,
    pack_error,
    pack_result,
    request_untrusted,
)
from edgert.control.socket import READ_BYTES, address_of, may_speak, peer
from edgert.core.errors import EdgertError, PayloadError

log = logging.getLogger(__name__)

Handler = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Carries out a verb: takes the request's arguments, returns a plain value; an `EdgertError` becomes the answer."""

MAX_CONNECTIONS: Final = 16
"""At one time. For one more, the connection that has been idle longest is closed."""
BACKLOG: Final = 128
"""Clients that have connected and were not looked at yet."""
MAX_PIPELINED: Final = 8
"""Requests of one connection that are carried out at one time; the next is not read before one of them is answered."""
MAX_UNDER_WAY: Final = MAX_CONNECTIONS * MAX_PIPELINED
"""Requests that are carried out at one time, those of lost connections included; of more the answer is an error."""
STALL_S: Final = 5.0
"""A client that stops within a frame, or does not take an answer, loses its connection after this time."""
SOCKET_MODE: Final = 0o660


class ControlServer:
    """Serves `handlers` (verb → handler) at a path; entries may be added to that mapping at any time."""

    def __init__(
        self, path: str | Path, handlers: Mapping[str, Handler], *, max_request_bytes: int = MAX_REQUEST_BYTES
    ) -> None:
        self.path = str(path)
        self.handlers = handlers
        self.max_request_bytes = max_request_bytes
        """Largest body of a request."""
        self.max_under_way, self.stall_s = MAX_UNDER_WAY, STALL_S
        self._listener: socket.socket | None = None
        self._lock = -1
        self._group = -1
        self._accepting: asyncio.Task[None] | None = None
        self.connections: set[_Connection] = set()
        self._under_way: set[asyncio.Task[None]] = set()
        self.refused = 0
        """Processes that were not allowed to speak."""

    async def start(self) -> None:
        """Raises `ControlError` where another process serves this path, or the socket cannot be made."""
        try:
            self._open()
        except OSError as error:
            self._close_files()
            raise ControlError(f"the control socket {self.path} cannot be made: {error.strerror or error}") from error
        self._accepting = asyncio.create_task(self._accept())

    def _open(self) -> None:
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), mode=0o755, exist_ok=True)
        self._lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # goes with this process, however it ends
        except BlockingIOError:
            self._close_files()
            raise ControlError(f"the control socket {self.path} is served by another process already") from None
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.lstat(self.path).st_mode):
                raise FileExistsError(errno.EEXIST, "expected a socket there, or nothing; a file is in its place")
            os.unlink(self.path)  # of a process that was killed
        self._listener = listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.setblocking(False)
        with address_of(self.path) as address:
            listener.bind(address)
        os.chmod(self.path, SOCKET_MODE)
        self._group = os.stat(self.path).st_gid
        listener.listen(BACKLOG)

    async def stop(self) -> None:
        """Closes all connections. Requests under way go on, and their answers go nowhere."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
        if self._listener is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        self._close_files()
        for connection in list(self.connections):
            connection.close()

    def _close_files(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def _accept(self) -> None:
        assert self._listener is not None
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(self._listener)
            except OSError as error:  # no descriptor is free, for instance
                log.warning("the control socket cannot take a connection: %s", error)
                await asyncio.sleep(1.0)
                continue
            try:
                await self._take(sock)
            except OSError as error:
                log.debug("a client of the control socket was gone at once: %s", error)
                sock.close()

    async def _take(self, sock: socket.socket) -> None:
        pid, uid, groups = peer(sock)
        if not may_speak(uid, groups, os.geteuid(), self._group):
            self.refused += 1
            log.warning("process %d of user %d may not use the control socket: expected root, user %d or group %d",
                        pid, uid, os.geteuid(), self._group)  # fmt: skip
            sock.close()
            return
        if len(self.connections) >= MAX_CONNECTIONS:
            idle = [connection for connection in self.connections if not connection.under_way]
            if not idle:
                with contextlib.suppress(OSError):
                    sock.send(pack_error(0, f"expected at most {MAX_CONNECTIONS} connections; all are in use"))
                sock.close()
                return
            min(idle, key=lambda connection: connection.heard).close()
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        connection = _Connection(self, reader, writer)
        self.connections.add(connection)
        connection.task.add_done_callback(lambda _: self.connections.discard(connection))

    def begin(self, connection: _Connection, request: Request) -> bool:
        """Carries out a request beside others; false if too many are under way."""
        if len(self._under_way) >= self.max_under_way:
            return False
        task = asyncio.create_task(self._carry_out(connection, request))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return True

    async def _carry_out(self, connection: _Connection, request: Request) -> None:
        try:
            await connection.send(await self._answer(request))
        finally:
            connection.answered()

    async def _answer(self, request: Request) -> bytes:
        handler = self.handlers.get(request.verb)
        if handler is None:
            known = ", ".join(sorted(self.handlers))
            return pack_error(request.id, f"verb: expected one of {known}, got {request.verb}")
        try:
            return pack_result(request.id, await handler(request.args))
        except EdgertError as error:
            return pack_error(request.id, str(error) or repr(error))
        except Exception as error:
            log.exception("the request %s could not be carried out", request.verb)
            return pack_error(request.id, f"an unforeseen fault: {error!r}")


class _Connection:
    """One client of a server."""

    def __init__(self, server: ControlServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server, self._reader, self._writer = server, reader, writer
        self._splitter = Splitter(server.max_request_bytes)
        self._sending = asyncio.Lock()
        self._room = asyncio.Semaphore(MAX_PIPELINED)
        self.heard = time.monotonic()
        """When its last request came, monotonic seconds."""
        self.under_way = 0
        """Requests without an answer yet."""
        self.task = asyncio.create_task(self._serve())

    def close(self) -> None:
        self._writer.transport.abort()
        self.task.cancel()

    def answered(self) -> None:
        """A request of it is done with."""
        self.under_way -= 1
        self._room.release()

    async def _serve(self) -> None:
        try:
            while chunk := await asyncio.wait_for(self._reader.read(READ_BYTES), self._patience_s):
                for body in self._splitter.feed_untrusted(chunk):
                    await self._request_untrusted(body)
        except TimeoutError:
            await self.send(pack_error(0, f"expected the rest of a frame within {self._server.stall_s:g} s"))
        except PayloadError as error:
            await self.send(pack_error(0, str(error)))
        except OSError:
            log.debug("a client of the control socket is gone")
        finally:
            self._writer.close()

    @property
    def _patience_s(self) -> float | None:
        """A client may be silent as long as it likes between two requests."""
        return self._server.stall_s if self._splitter.within else None

    async def _request_untrusted(self, body: bytes) -> None:
        request = request_untrusted(body, self._server.max_request_bytes)
        self.heard = time.monotonic()
        await self._room.acquire()
        self.under_way += 1
        if not self._server.begin(self, request):
            self.answered()
            await self.send(
                pack_error(request.id, f"{self._server.max_under_way} requests are under way already; try again")
            )

    async def send(self, data: bytes) -> None:
        """Sends an answer. A client that does not take it is given up."""
        try:
            async with asyncio.timeout(self._server.stall_s), self._sending:
                self._writer.write(data)
                await self._writer.drain()
        except (OSError, TimeoutError):
            self._writer.transport.abort()
