"""The threads of a process: what each is for, and the processor time that it has used."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any, Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_ROLES: Final = (("worker", "worker"), ("store", "store"))
"""How a thread's name begins, and its role."""


def roles(main: str) -> dict[int, str]:
    """Thread id (the kernel's) → role, of the Python threads of this process; `main` is the role of the main thread."""
    found: dict[int, str] = {}
    for thread in threading.enumerate():
        if (number := thread.native_id) is not None:
            found[number] = main if thread is threading.main_thread() else _role(thread.name)
    return found


def _role(name: str) -> str:
    return next((role for begin, role in _ROLES if name.startswith(begin)), "other")


def threads_of(pid: int, slot: int, roles: Mapping[int, str]) -> list[dict[str, Any]]:
    """All threads of process `pid`: {pid, tid, slot, role, cpu_s, start_ticks}; none where the process has ended. A
    thread without an entry in `roles` is none of Python's, and its role `other`.

    `start_ticks` (clock ticks since boot) with `tid` names a thread for good: the kernel gives ids again.
    """
    found = []
    for tid in _tasks(pid):
        try:
            # os.open and os.read: a third of the time of a file object, and this is read per thread and question.
            file = os.open(f"/proc/{pid}/task/{tid}/stat", os.O_RDONLY | os.O_CLOEXEC)
            try:
                after_name = os.read(file, 4096).rpartition(b")")[2].split()
            finally:
                os.close(file)
        except OSError:
            continue  # the thread has ended meanwhile
        # proc(5): fields 14 and 15 are utime and stime, 22 is starttime; the first here is field 3
        used = (int(after_name[11]) + int(after_name[12])) / _TICKS_PER_S
        found.append({
            "pid": pid, "tid": tid, "slot": slot, "role": roles.get(tid, "other"), "cpu_s": used,
            "start_ticks": int(after_name[19]),
        })  # fmt: skip
    return found


def _tasks(pid: int) -> list[int]:
    try:
        return sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        return []
