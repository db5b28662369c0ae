"""Limits of a process by control groups: cores and memory, by groups of version 2 or 1."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

GROUPS: Final = Path("/sys/fs/cgroup")
PROC: Final = Path("/proc")


class Limits(NamedTuple):
    """`inf` where there is no limit."""

    cores: float
    memory: float
    """Bytes; the limit above which a process is killed, or slowed down (`MemoryMax=`, `MemoryHigh=`)."""


def limits(pid: int | str = "self", proc: Path = PROC, groups: Path = GROUPS) -> Limits:
    """The least limits of the process's groups and of the groups around them. A group that cannot be read has none."""
    cores, memory = inf, inf
    for controllers, group in _groups(proc / str(pid) / "cgroup"):
        if not controllers:
            for folder in _upwards(groups, group):
                cores = min(cores, _max_cores(folder / "cpu.max"))
                memory = min(memory, _number(folder / "memory.max"), _number(folder / "memory.high"))
        if "cpu" in controllers:
            for folder in _upwards(groups / "cpu", group):
                quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
                cores = min(cores, quota / period if 0 < quota < inf and 0 < period < inf else inf)
        if "memory" in controllers:
            for folder in _upwards(groups / "memory", group):
                memory = min(memory, _number(folder / "memory.limit_in_bytes"))
    return Limits(cores, memory)


def service_memory() -> float:
    """Bytes that this process and those that it starts may have: the least limit of its control groups, or half of the
    board's memory."""
    return min(limits().memory, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2)


def _groups(file: Path) -> Iterator[tuple[list[str], str]]:
    """(controllers, path) of each line of `/proc/PID/cgroup`; version 2 names no controllers."""
    try:
        text = file.read_text()
    except OSError:
        return
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        yield [name for name in controllers.split(",") if name], path


def _upwards(root: Path, group: str) -> Iterator[Path]:
    """The folders of a group and of those around it. A group outside of our namespace (`/../x`) is not seen here."""
    parts = [part for part in group.split("/") if part]
    if ".." in parts:
        parts = []
    for length in range(len(parts), -1, -1):
        yield root.joinpath(*parts[:length])


def _max_cores(file: Path) -> float:
    """Reads `cpu.max`: quota and period in µs, or `max`. Returns cores."""
    try:
        quota, period = file.read_text().split()
        return inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return inf


def _number(file: Path) -> float:
    try:
        text = file.read_text().strip()
        return inf if text == "max" else float(text)
    except (OSError, ValueError):
        return inf
