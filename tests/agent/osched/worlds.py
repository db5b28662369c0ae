"""Processes and threads to be scheduled: real ones, of the test's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agent.drivers.entities import Thread
from agent.drivers.procfs import ProcFs
from agent.osched.kernel.rights import can_raise_priority

PROC = ProcFs()
SPAWNING = """
import subprocess, sys, threading
e = threading.Event()
for _ in range({}): threading.Thread(target=e.wait, daemon=True).start()
print(flush=True)
for line in sys.stdin:
    if line == "fork\\n":
        child = subprocess.Popen(["sleep", "60"], process_group=0)
        print(child.pid, flush=True)
        continue
    threading.Thread(target=e.wait, daemon=True).start(); print(flush=True)
"""
BUSY = "print(flush=True)\nwhile True: pass"

needs_nice = pytest.mark.skipif(not can_raise_priority(), reason="needs CAP_SYS_NICE, to lower nice values again")


class Worker:
    """A process; `threads` of it idle beside its main thread."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self.children: list[int] = []

    def spawn(self) -> None:
        """One more thread, started by the main thread: it inherits that one's nice value."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._process.stdout.readline()

    def fork(self) -> int:
        """A process that the main thread starts; ends with the block of `worker`, too."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("fork\n")
        self._process.stdin.flush()
        self.children.append(int(self._process.stdout.readline()))
        return self.children[-1]

    def threads(self) -> list[Thread]:
        """All of them, the main thread first."""
        return sorted((seen.thread for seen in PROC.threads(self.pid)), key=lambda thread: thread.tid)

    def nices(self) -> list[int]:
        """Nice value of each thread, in the same order."""
        return [os.getpriority(os.PRIO_PROCESS, thread.tid) for thread in self.threads()]


@contextmanager
def worker(code: str = "", threads: int = 0, cpu: int | None = None, session: bool = False) -> Iterator[Worker]:
    """A process that ends with the block; on one processor if `cpu` is given, in a session of its own if asked."""
    text = code or SPAWNING.format(threads)
    process = subprocess.Popen(
        [sys.executable, "-c", text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=session,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        if cpu is not None:
            os.sched_setaffinity(process.pid, {cpu})
        made = Worker(process)
        yield made
        for child in made.children:
            os.kill(child, signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()
