"""A link over a Unix socket: sending never waits, from whatever thread; one thread receives."""

from __future__ import annotations

import array
import contextlib
import errno
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from edgert.links.frames import FrameSplitter

READ_BYTES: Final = 262_144
SOCKET_BYTES: Final = 1_048_576
_FD_BYTES: Final = socket.CMSG_SPACE(4 * array.array("i").itemsize)

_NOT_NOW: Final = (errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS)
"""The machine lacks memory or room for sockets under way. The other end lives, so that nothing may be left out."""


class LinkClosed(Exception):
    """The process at the other end is gone."""


class UnixLink:
    """Frames over a connected stream socket. Bytes that the socket does not take at once wait in `backlog_bytes`; then
    `on_backlog` is called (on the sender's thread), and the owner of the loop calls `flush` when the socket is
    writable."""

    def __init__(self, sock: socket.socket, on_backlog: Callable[[], None] = lambda: None) -> None:
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # a smaller one does as well
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        self.sock = sock
        self.on_backlog = on_backlog
        self.closed = False
        self.backlog_bytes = 0
        self._backlog: deque[tuple[memoryview, socket.socket | None]] = deque()
        self._lock = threading.Lock()
        self._splitter = FrameSplitter()
        self.received: deque[socket.socket] = deque()
        """Sockets that came with frames, in their order."""

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, data: bytes, sock: socket.socket | None = None) -> None:
        """A frame, and with it a socket, which the receiver finds in `received`. Frames of one thread keep their order,
        and so do those of several that share a lock. What is sent to a link that is closed is lost with the process at
        its end, which takes its flows back to their last checkpoints."""
        with self._lock:
            if self.closed:
                return
            rest = memoryview(data)
            if not self._backlog:
                sent = self._try(rest, sock)
                if sent == len(rest):
                    return
                rest = rest[sent:]
                if sent:
                    sock = None
            self._backlog.append((rest, sock.dup() if sock is not None else None))
            self.backlog_bytes += len(rest)
        self.on_backlog()

    def flush(self) -> bool:
        """Sends what waits, as far as the socket takes it; whether nothing is left."""
        with self._lock:
            while self._backlog and not self.closed:
                first, sock = self._backlog[0]
                sent = self._try(first, sock)
                self.backlog_bytes -= sent
                if sent and sock is not None:
                    sock.close()
                    sock = None
                if sent < len(first):
                    self._backlog[0] = (first[sent:], sock)
                    return False
                self._backlog.popleft()
            return True

    def _try(self, data: memoryview, sock: socket.socket | None) -> int:
        """How many bytes the socket takes now; `sock` goes with the first."""
        try:
            return self.sock.send(data) if sock is None else socket.send_fds(self.sock, [data], [sock.fileno()])
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            if error.errno in _NOT_NOW:
                return 0
            self.closed = True  # the receiving side will learn it too, and says so
            return len(data)

    def receive(self) -> Iterator[list[Any]]:
        """The frames of one read; nothing if there is none to read. Raises `LinkClosed` at the stream's end, and
        `PayloadError` where it is damaged."""
        try:
            chunk, ancillary, _, _ = self.sock.recvmsg(READ_BYTES, _FD_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise LinkClosed(str(error)) from error
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                for number in array.array("i", data[: len(data) - len(data) % 4]):
                    self.received.append(socket.socket(fileno=number))
        if not chunk:
            raise LinkClosed("the process at the other end has closed it")
        yield from self._splitter.feed(chunk)

    def close(self) -> None:
        with self._lock:
            self.closed = True
            for sock in (*(s for _, s in self._backlog if s is not None), *self.received):
                sock.close()
            self._backlog.clear()
            self.backlog_bytes = 0
        self.sock.close()
