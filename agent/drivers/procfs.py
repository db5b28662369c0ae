"""Threads and the board by /proc. Only reads; a thread that is gone gives None."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from agent.drivers.entities import Thread

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_OWNERS: Final = re.compile(r"^Uid:\t(\d+)\t(\d+)\t(\d+)", re.MULTILINE)
_PRESSURE: Final = re.compile(r"^some avg10=([0-9]{1,3}\.[0-9]{1,9}) ", re.MULTILINE)


class Seen(NamedTuple):
    """A thread, at one moment."""

    thread: Thread
    name: str
    nice: int
    cpu_s: float


class CpuTimes(NamedTuple):
    """CPU time of a thread and the time it waited for a core, since its start, s."""

    ran_s: float
    waited_s: float


def pressure_untrusted(text: str) -> float | None:
    """Part of the last 10 s in which something waited, by a file in /proc/pressure; None of any other text."""
    found = _PRESSURE.search(text)
    return min(1.0, float(found[1]) / 100) if found else None


@dataclass(frozen=True, slots=True)
class ProcFs:
    """A proc file system; `/proc`, but for tests."""

    root: Path = Path("/proc")

    def _read(self, path: str) -> str | None:
        try:
            # os.open and os.read: a third of the time of an open file object, and this is read per thread and period.
            file = os.open(f"{self.root}/{path}", os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError, PermissionError, NotADirectoryError):
            return None
        try:
            return os.read(file, 65_536).decode(errors="replace")
        except (ProcessLookupError, OSError):
            return None
        finally:
            os.close(file)

    def look(self, pid: int, tid: int) -> Seen | None:
        """The thread `tid` of the process `pid` as it is now."""
        text = self._read(f"{pid}/task/{tid}/stat")
        if not text:
            return None
        # The name stands in brackets and may hold anything, brackets too.
        name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        if fields[0] in "XZ":
            return None
        cpu_s = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
        return Seen(Thread(pid, tid, int(fields[19])), name, int(fields[16]), cpu_s)

    def is_same(self, thread: Thread) -> bool:
        """True if the thread lives; false too where its id belongs to another one by now."""
        seen = self.look(thread.pid, thread.tid)
        return seen is not None and seen.thread == thread

    def started(self, pid: int) -> int | None:
        """Start of the process in clock ticks after the boot."""
        fields = self._fields(pid)
        return None if fields is None else int(fields[19])

    def owners(self, pid: int) -> set[int]:
        """Ids of the users of a process (real, effective, saved); empty if it is gone. The owner of its folder is no
        proof: any process can have that be root."""
        text = self._read(f"{pid}/status") or ""
        found = _OWNERS.search(text)
        return {*map(int, found.groups())} if found else set()

    def parent(self, pid: int) -> int | None:
        """The process that started this one, or took it over; 0 for the first of all."""
        fields = self._fields(pid)
        return None if fields is None else int(fields[1])

    def children(self) -> dict[int, list[int]]:
        """Process -> the processes that it started, as far as they and it live."""
        found: dict[int, list[int]] = {}
        for name in os.listdir(self.root):
            if name.isdigit() and (fields := self._fields(int(name))) is not None:
                found.setdefault(int(fields[1]), []).append(int(name))
        return found

    def _fields(self, pid: int) -> list[str] | None:
        """From the state on. Also of a process whose first thread has ended while others live."""
        text = self._read(f"{pid}/stat")
        return text[text.rindex(")") + 2 :].split() if text else None

    def threads(self, pid: int) -> list[Seen]:
        """All threads of a process; empty if it is gone."""
        try:
            names = os.listdir(f"{self.root}/{pid}/task")
        except OSError:
            return []
        return [seen for name in names if name.isdigit() and (seen := self.look(pid, int(name))) is not None]

    def times(self, thread: Thread) -> CpuTimes | None:
        """From schedstat, in nanoseconds there; None without CONFIG_SCHED_INFO, or for a thread that is gone."""
        text = self._read(f"{thread.pid}/task/{thread.tid}/schedstat")
        if not text:
            return None
        ran, waited, *_ = text.split()
        return CpuTimes(int(ran) / 1e9, int(waited) / 1e9)

    def boot_id(self) -> str:
        """Differs from boot to boot; empty if the kernel does not tell."""
        return (self._read("sys/kernel/random/boot_id") or "").strip()

    def now_ticks(self) -> int:
        """Clock ticks since the boot, as `start_ticks` counts them."""
        return int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)

    def autogroup_on(self) -> bool:
        """True if the kernel groups the threads of each session, so that nice compares only within a session."""
        return (self._read("sys/kernel/sched_autogroup_enabled") or "").strip() == "1"

    def autogroup(self, pid: int) -> str:
        """Name of the process's autogroup; empty if there are none."""
        return (self._read(f"{pid}/autogroup") or "").partition(" ")[0].strip()

    def cgroups(self, pid: int, tid: int | None = None) -> str:
        """Text of /proc/<pid>/[task/<tid>/]cgroup."""
        return self._read(f"{pid}/task/{tid or pid}/cgroup") or ""

    def pressure(self) -> float | None:
        """Part of the last 10 s in which something waited for a core (PSI, some); None without PSI."""
        return pressure_untrusted(self._read("pressure/cpu") or "")

    def busy_and_total_s(self) -> tuple[float, float]:
        """CPU seconds of all cores since the boot: in use, and in all."""
        fields = [int(f) for f in (self._read("stat") or "cpu 0 0 0 0 0").splitlines()[0].split()[1:9]]
        return (sum(fields) - sum(fields[3:5])) / TICKS_PER_S, sum(fields) / TICKS_PER_S
