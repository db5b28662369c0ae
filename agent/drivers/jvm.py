"""Threads of Java programs by their full names: the JVM is asked by `jcmd <pid> Thread.print`.

In /proc a name is cut to 15 characters. A question costs a process (some 0.3 s of CPU), so it is asked again only when
other threads are wanted, or one has ended, and no more often than every `AGAIN_S`.

Any process can have the arguments of a task manager. Only those of certain users are asked and scheduled.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from agent.drivers.entities import Thread
from agent.drivers.procfs import ProcFs
from edgert.bounded import never, output
from edgert.core.errors import EdgertError

AGAIN_S: Final = 10.0
TIMEOUT_S: Final = 10.0
MOST_PROCESSES: Final = 32
"""Java processes of one engine that are asked for their threads."""
MOST_BYTES: Final = 8 * 1024 * 1024
"""Bytes of the output of `jcmd` that are read: some 5,000 threads."""
ARGUMENT_BYTES: Final = 1_000_000
_ID: Final = re.compile(r"(0x[0-9a-f]{1,8}|\d{1,10})\b")
"""A thread's id: hexadecimal up to Java 18, decimal from 19 on."""
_ATTEMPT: Final = re.compile(r"#\d+$")


Find = Callable[[set[str]], tuple[Mapping[str, Thread], list[str]]]
"""Names of threads -> (name -> thread, notes): names of several threads are left out, and noted."""


def now_s() -> float:
    """Monotonic seconds."""
    return time.monotonic()


def wait_s(seconds: float) -> None:
    """Block this thread."""
    time.sleep(seconds)


def parse_untrusted(text: str) -> Iterator[tuple[str, int]]:
    """(name, kernel's thread id) of each thread in the output of Thread.print. The attempt (`#0` after the name of a
    Flink task) is cut off."""
    at = 0
    while 0 <= at < len(text):
        end = text.find("\n", at)
        if text.startswith('"', at):
            line = text[at : len(text) if end < 0 else end]
            id_at = line.rfind(" nid=")
            name_ends = line.rfind('" ', 1, id_at + 1)
            if name_ends > 0 and (found := _ID.match(line, id_at + 5)):
                yield _ATTEMPT.sub("", line[1:name_ends]), int(found[0], 0)
        at = end + 1 if end >= 0 else -1


def processes(
    main_classes: Sequence[str], users: Collection[int], proc: ProcFs
) -> tuple[dict[int, list[str]], list[str]]:
    """Returns (process -> arguments, notes) of the Java processes with one of these main classes; those of other users
    are left out, and noted."""
    found: dict[int, list[str]] = {}
    others: Counter[int] = Counter()
    for name in os.listdir("/proc"):
        if name.isdigit() and (owners := proc.owners(int(name))):
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    arguments = file.read(ARGUMENT_BYTES).decode(errors="replace").split("\0")
            except OSError:
                continue
            if any(main in arguments for main in main_classes):
                if owners <= {*users}:
                    found[int(name)] = arguments
                else:
                    others[max(owners)] += 1
    notes = [
        f"processes of user {user} with the main class of an engine are left alone ({number}): if they are the "
        "engine's, name that user in sched.engine_users"
        for user, number in others.most_common(3)
    ]
    return found, notes


def everywhere(arguments: Sequence[str]) -> str:
    """The scope of an engine whose names of threads are compared over all its processes."""
    return ""


class ThreadNames:
    """The threads of this board's Java processes with certain main classes.

    `users`: ids of users whose processes count, besides the agent's own. `scope`: arguments of a process -> text put
    before the names of its threads; None: the process is left out. `plain`: name of a thread -> name to compare.
    `ended`: true when nobody waits for an answer any more.
    """

    def __init__(
        self,
        main_classes: Sequence[str],
        users: Collection[int] = (),
        *,
        scope: Callable[[Sequence[str]], str | None] = everywhere,
        plain: Callable[[str], str] = str,
        ended: Callable[[], bool] = never,
    ) -> None:
        self._main_classes, self._proc = main_classes, ProcFs()
        self._users = frozenset((os.geteuid(), *users))
        self._scope, self._plain, self._ended = scope, plain, ended
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
        found: dict[str, set[Thread]] = {}
        ours, self._notes = processes(self._main_classes, self._users, self._proc)
        if len(ours) > MOST_PROCESSES:
            self._notes.append(f"expected at most {MOST_PROCESSES} processes of the engine, got {len(ours)}")
        until = now_s() + TIMEOUT_S
        for pid, arguments in sorted(ours.items())[:MOST_PROCESSES]:
            if (scope := self._scope(arguments)) is None:
                continue
            try:
                said = output(
                    jcmd, str(pid), "Thread.print",
                    within_s=max(0.0, until - now_s()), most_bytes=MOST_BYTES, given_up=self._ended,
                )  # fmt: skip
            except EdgertError as error:
                self._notes.append(f"process {pid} does not tell its threads: {error}")
                continue
            if (self._proc.owners(pid) or {-1}) <= self._users:  # its id may be that of another process by now
                self._take(found, wanted, scope, pid, said)
        self._known = {name: threads.pop() for name, threads in found.items() if len(threads) == 1}
        self._notes += [f"{len(t)} threads are called {n}: left alone" for n, t in found.items() if len(t) > 1]

    def _take(self, found: dict[str, set[Thread]], wanted: set[str], scope: str, pid: int, said: str) -> None:
        for told, tid in parse_untrusted(said):
            name = scope + self._plain(told)
            seen = self._proc.look(pid, tid) if name in wanted else None
            if seen is not None:
                found.setdefault(name, set()).add(seen.thread)
