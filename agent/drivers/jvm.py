"""Threads of Java programs by their full names: the JVM is asked by `jcmd <pid> Thread.print`.

In /proc a name is cut to 15 characters. A question costs a process (some 0.3 s of CPU), so it is asked again only when
other threads are wanted, or one has ended, and no more often than every `AGAIN_S`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from agent.drivers.entities import Thread
from agent.drivers.procfs import ProcFs

AGAIN_S: Final = 10.0
TIMEOUT_S: Final = 10.0
_LINE: Final = re.compile(r'^"(?P<name>.*)" (?:#\d+ )?.*\bnid=(?P<nid>0x[0-9a-f]+|\d+)\b', re.MULTILINE)
"""A thread in the output; the id is hexadecimal up to Java 18, decimal from 19 on."""
_ATTEMPT: Final = re.compile(r"#\d+$")


Find = Callable[[set[str]], tuple[Mapping[str, Thread], list[str]]]
"""Names of threads -> (name -> thread, notes): names of several threads are left out, and noted."""


def now_s() -> float:
    """Monotonic seconds."""
    return time.monotonic()


def wait_s(seconds: float) -> None:
    """Block this thread."""
    time.sleep(seconds)


def parse_untrusted(text: str) -> list[tuple[str, int]]:
    """(name, kernel's thread id) of each thread in the output of Thread.print. The attempt (`#0` after the name of a
    Flink task) is cut off."""
    return [(_ATTEMPT.sub("", m["name"]), int(m["nid"], 0)) for m in _LINE.finditer(text)]


def processes(main_classes: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """(process id, arguments) of the Java processes with one of these main classes."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    arguments = file.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            if any(main in arguments for main in main_classes):
                yield int(name), arguments


def everywhere(arguments: Sequence[str]) -> str:
    """The scope of an engine whose names of threads are compared over all its processes."""
    return ""


class ThreadNames:
    """The threads of this board's Java processes with certain main classes.

    `scope`: arguments of a process -> text put before the names of its threads; None: the process is left out.
    `plain`: name of a thread -> name to compare.
    """

    def __init__(
        self,
        main_classes: Sequence[str],
        scope: Callable[[Sequence[str]], str | None] = everywhere,
        plain: Callable[[str], str] = str,
    ) -> None:
        self._main_classes, self._proc = main_classes, ProcFs()
        self._scope, self._plain = scope, plain
        self._known: dict[str, Thread] = {}
        self._notes: list[str] = []
        self._wanted: set[str] = set()
        self._asked_s = -AGAIN_S

    def find(self, wanted: set[str]) -> tuple[Mapping[str, Thread], list[str]]:
        """See `Find`."""
        stale = wanted != self._wanted or not all(map(self._proc.is_same, self._known.values()))
        if stale and now_s() - self._asked_s >= AGAIN_S:
            self._asked_s, self._wanted = now_s(), wanted
            self._ask(wanted)
        return self._known, self._notes

    def _ask(self, wanted: set[str]) -> None:
        jcmd = shutil.which("jcmd")
        if jcmd is None:
            self._notes = ["jcmd is not installed, so no thread can be attributed: install a JDK"]
            return
        found: dict[str, list[Thread]] = {}
        self._notes = []
        for pid, arguments in processes(self._main_classes):
            if (scope := self._scope(arguments)) is None:
                continue
            try:
                done = subprocess.run(
                    [jcmd, str(pid), "Thread.print"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
                )
            except (OSError, subprocess.SubprocessError) as error:
                self._notes.append(f"process {pid} does not tell its threads: {error}")
                continue
            for told, tid in parse_untrusted(done.stdout):
                name = scope + self._plain(told)
                seen = self._proc.look(pid, tid) if name in wanted else None
                if seen is not None:
                    found.setdefault(name, []).append(seen.thread)
        self._known = {name: threads[0] for name, threads in found.items() if len(threads) == 1}
        self._notes += [f"{len(t)} threads are called {n}: left alone" for n, t in found.items() if len(t) > 1]
