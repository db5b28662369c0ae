"""Capacity and load of this board, as the agent tells them to the others."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent.core_speed import CoreSpeed, processor
from edgert.limits import Limits

UNKNOWN_MBIT: Final = 100.0
"""Bandwidth where the kernel tells none."""


def memory(meminfo: Path = Path("/proc/meminfo")) -> tuple[int, int]:
    """(total, available) main memory in MiB; zeros where the kernel does not say."""
    found = {"MemTotal": 0, "MemAvailable": 0}
    try:
        for line in meminfo.read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in found:
                found[name] = int(rest.split()[0]) // 1024
    except (OSError, ValueError, IndexError):
        pass
    return found["MemTotal"], found["MemAvailable"]


def bandwidth_mbit(net: Path = Path("/sys/class/net")) -> float:
    """The greatest speed of a network card whose link is up. Bridges and tunnels are no cards."""
    told = []
    for card in net.glob("*/device"):
        with contextlib.suppress(OSError, ValueError):  # of Wi-Fi, and of a card that is switched off
            told.append(float((card.parent / "speed").read_text()))
    fastest = max(told, default=0.0)
    return fastest if fastest > 0 else UNKNOWN_MBIT  # -1: no cable, or a virtual machine


class BoardCapacity:
    """Capacity of this board, without control groups. Only the speed is measured again while the agent runs."""

    def __init__(self, folder: Path, told_mbit: float = 0.0) -> None:
        """`folder`: of the agent's data; `told_mbit`: the bandwidth by the settings, 0 where they leave it to the
        card."""
        self._speed = CoreSpeed(folder, processor())
        self._cores, self._memory_mib = len(os.sched_getaffinity(0)), memory()[0]
        self._bandwidth_mbit = told_mbit or bandwidth_mbit()

    def look(self) -> dict[str, Any]:
        """Returns cores, speed of one in million loops per second, memory in MiB, bandwidth."""
        return {"cores": self._cores, "speed": self._speed.look(), "memory_mib": self._memory_mib,
                "bandwidth_mbit": self._bandwidth_mbit}  # fmt: skip


def within(board: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """The capacity that control groups leave: a quota of 30 % of a core is 0.3 cores."""
    cores, memory_mib = min(board["cores"], limits.cores), min(board["memory_mib"], limits.memory / 2**20)
    return {**board, "cores": round(cores, 2) if cores < board["cores"] else cores, "memory_mib": int(memory_mib)}


def runnable(load: float, pressure: float | None, cores: float) -> float:
    """Returns runnable processes on average. `load`: the load average of a minute; `pressure`: the part of the last
    10 s in which one waited for a core, None where the kernel does not tell. While one waits, all cores are in use: the
    mean is at least `pressure` × (cores + 1), and says so sooner than the load average."""
    return load if pressure is None else max(load, pressure * (cores + 1))


def load() -> dict[str, Any]:
    """Load average of a minute, and available memory in steps of 16 MiB (so that not every look is news)."""
    return {"load": round(os.getloadavg()[0], 1), "available_mib": memory()[1] // 16 * 16}
