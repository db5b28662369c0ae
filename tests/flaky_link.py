"""A link that is cut again and again: what is on its way when that happens is lost, in the midst of a packet or not."""

from __future__ import annotations

import random
import socket
import struct
import threading

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: close at once and throw away what was not sent (RST instead of FIN)."""


class FlakyLink:
    """Listens on 127.0.0.1 and passes bytes on to `target`, both ways. `cut` ends what stands; while it is down nothing
    gets through. `flap` does that by itself until `steady`."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.cuts = 0
        """Connections that were cut while they stood."""
        self.bytes = 0
        self._down = threading.Event()
        self._closed, self._steady = threading.Event(), threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def up(self) -> None:
        self._down.clear()

    def down(self) -> None:
        self._down.set()
        self.cut()

    def cut(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, []
        self.cuts += len(pairs)
        for pair in pairs:
            for end in pair:
                self._reset(end)

    def flap(self, draw: random.Random, up_s: tuple[float, float], down_s: tuple[float, float]) -> None:
        """From now on: up for a while, then down for a while, and so on."""

        def run() -> None:
            while not self._steady.wait(draw.uniform(*up_s)):
                self.down()
                self._steady.wait(draw.uniform(*down_s))
                self.up()

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def steady(self) -> None:
        """The end of all that: the link is up from now on."""
        self._steady.set()
        for thread in self._threads[1:]:
            thread.join(60.0)

    def close(self) -> None:
        self.steady()
        self._closed.set()
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(60.0)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            if self._down.is_set():
                self._reset(here)
                continue
            try:
                there = socket.create_connection(("127.0.0.1", self.target), 5.0)
            except OSError:
                self._reset(here)
                continue
            with self._lock:
                self._pairs.append((here, there))
            for source, sink in ((here, there), (there, here)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(4_096):
                sink.sendall(data)
                self.bytes += len(data)
        except OSError:
            pass
        with self._lock:
            for end in (source, sink):
                self._reset(end)
            self._pairs = [pair for pair in self._pairs if source not in pair]

    @staticmethod
    def _reset(end: socket.socket) -> None:
        try:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            end.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
        except OSError:
            pass
        end.close()
