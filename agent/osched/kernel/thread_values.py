"""The four values of a thread that the agent changes: its nice value, its slice, its cores, its control group."""

from __future__ import annotations

import os
from pathlib import Path

from agent.drivers.entities import Thread
from agent.drivers.procfs import ProcFs
from agent.osched.kernel import slices
from agent.osched.kernel.cgroups import Cgroups
from agent.osched.kernel.clusters import cores, mask
from agent.osched.kernel.journal import ChangeKind
from agent.osched.kernel.rights import Abilities


class ThreadValues:
    """Reads and writes them. A nice value, a slice (ns) and cores (a mask) are numbers, a group is the path of its
    folder."""

    def __init__(self, able: Abilities, proc: ProcFs) -> None:
        self._able, self._proc = able, proc

    def get(self, kind: ChangeKind, thread: Thread) -> int | str | None:
        """The present value; None if the thread is gone, or the kernel does not tell."""
        if kind == "nice":
            seen = self._proc.look(thread.pid, thread.tid)
            return None if seen is None else seen.nice
        if kind == "slice":
            try:
                return slices.get(thread.tid)
            except OSError:
                return None
        if kind == "cores":
            try:
                return mask(os.sched_getaffinity(thread.tid))
            except OSError:
                return None
        folder = self._able.cgroups.group_of(thread) if self._able.cgroups else None
        return None if folder is None else str(folder)

    def put(self, kind: ChangeKind, thread: Thread, value: int | str) -> None:
        """Raises `OSError`; `ProcessLookupError` if the thread is gone."""
        if isinstance(value, str):
            self._groups().move(thread, Path(value))
        elif kind == "nice":
            os.setpriority(os.PRIO_PROCESS, thread.tid, value)
        elif kind == "cores":
            os.sched_setaffinity(thread.tid, cores(value))
        else:
            slices.put(thread.tid, value)

    def put_back(self, kind: ChangeKind, thread: Thread, value: int | str) -> None:
        """Set the value that it had before. Raises as `put` does."""
        if isinstance(value, str):
            if self._groups().group_of(thread) != Path(value):
                self._groups().move_back(thread, Path(value))
        elif kind == "slice" and value == self._able.slice_ns:
            slices.put(thread.tid, 0)  # the kernel's own again, not one of the same length
        else:
            self.put(kind, thread, value)

    def is_ours(self, kind: ChangeKind, value: int | str | None) -> bool:
        """True if the agent may have set the value. A program may choose the cores of its threads itself, so of those
        only the fast ones are ours."""
        clusters = self._able.clusters
        return value is not None and (kind != "cores" or clusters is None or int(value) & ~clusters.big == 0)

    def _groups(self) -> Cgroups:
        if self._able.cgroups is None:
            raise PermissionError("no cgroup with the cpu controller that we may write to")
        return self._able.cgroups
