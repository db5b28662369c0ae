"""Processes under measurement: started, asked, and ended; their CPU time to the nanosecond and their memory."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.ports import free_port

TIMEOUT_S = 60.0
"""A busy machine takes long to start a gateway."""
ROOT = Path(__file__).parents[1]
MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Returns when `condition` holds; `TimeoutError` saying `what` was waited for."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"expected {what} within {timeout_s:g} s")
        time.sleep(0.005)


class Child:
    """One process, asked and answering by lines."""

    def __init__(self, command: Sequence[str | Path], log: Path) -> None:
        self._log = log
        self.started = time.monotonic()
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                text=True,
                bufsize=1,
            )
        self.pid = self._process.pid
        self._memory = psutil.Process(self.pid).memory_info

    def cpu_s(self) -> float:
        """User and system time of all its threads so far. The kernel's clock of the process (clock_getcpuclockid(3))
        is what psutil's `cpu_times` shows rounded to 10 ms, which would be 5 % of a short measurement."""
        return time.clock_gettime((~self.pid << 3) | 2)

    def rss_mb(self) -> float:
        """Resident memory, MB (10^6 bytes)."""
        return float(self._memory().rss) / 1e6

    def tell(self, line: str) -> None:
        """Writes a line to it."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def ask(self, line: str = "") -> str:
        """Writes a line to it and returns the line that it answers with."""
        self.tell(line)
        return self.read()

    def read(self) -> str:
        """Its next line. `RuntimeError` with the end of its log if it has died."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"expected an answer of process {self.pid}, which has ended: {self.said()[-2000:]}")
        return line.rstrip("\n")

    def said(self) -> str:
        """What it has written to its log (standard error)."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """SIGTERM, and SIGKILL if that takes too long."""
        if self.alive:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def child(command: Sequence[str | Path], log: Path) -> Iterator[Child]:
    """A process that ends with the block."""
    process = Child(command, log)
    try:
        yield process
    finally:
        process.end()


@contextmanager
def module(name: str, log: Path, *arguments: object) -> Iterator[Child]:
    """`python -m NAME ARGUMENTS`, with this interpreter."""
    with child([sys.executable, "-m", name, *map(str, arguments)], log) as process:
        yield process


@contextmanager
def mosquitto(folder: Path, *, at_once: bool = False, max_packet_bytes: int = 0) -> Iterator[int]:
    """A Mosquitto of our own on loopback; gives the port. Its limits on queued messages are lifted (else it drops
    without a word). `at_once`: without Nagle's algorithm, which else holds a small message until the receiver has
    acknowledged the one before. `max_packet_bytes`: its limit; 0: none."""
    assert MOSQUITTO is not None
    port = free_port()
    lines = [f"listener {port} 127.0.0.1", "allow_anonymous true", "log_type error", "persistence false"]
    lines += ["max_queued_messages 0", "max_inflight_messages 0", *["set_tcp_nodelay true"] * at_once]
    lines += [f"max_packet_size {max_packet_bytes}"] * (max_packet_bytes > 0)
    if os.geteuid() == 0:
        lines.append("user root")  # or it could not read from our folder
    file = folder / "mosquitto.conf"
    file.write_text("\n".join([*lines, ""]), encoding="ascii")
    with child([MOSQUITTO, "-c", file], folder / "mosquitto.log") as process:
        wait_for(lambda: _listens(port) or not process.alive, f"a broker on port {port}")
        yield port


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True
