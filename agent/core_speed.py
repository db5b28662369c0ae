"""Speed of a core of this board, in million loops of Python per second.

CPU time is measured, not time, since other programs run meanwhile. They still slow a core down: by its caches, by its
other hardware thread, by its clock rate. So the greatest of several looks counts, some seconds apart from each other,
and it is kept on disk for the board's kind of processor: boards that are alike come to the same figure, however busy
they were when their agents began.
"""

from __future__ import annotations

import json
import logging
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agent.membership.files import replace_file

log = logging.getLogger(__name__)
LOOPS: Final = 20_000
REPETITIONS: Final = 5
LOOKS: Final = 60
"""Looks of an agent, one with each reading of its gateway: five minutes, at 0.1 % of a core."""
NEWS: Final = 1.02
"""A greater speed is taken from this part of the one before on: not every look is news to the other boards."""
FILE: Final = "speed.json"
PARTS: Final = ("model name", "CPU implementer", "CPU part", "CPU variant")
"""Fields of /proc/cpuinfo that tell kinds of processors apart: the first on x86, the others on Arm."""


def measured(clock: Callable[[], float] = time.thread_time) -> float:
    """Returns the best of a few runs of about a millisecond. `clock`: seconds of CPU of this thread."""
    best = float("inf")
    for _ in range(REPETITIONS):
        began = clock()
        total = 0
        for number in range(LOOPS):
            total += number
        best = min(best, clock() - began)
    return round(LOOPS / best / 1e6, 1)


def processor(cpuinfo: Path = Path("/proc/cpuinfo"), cpus: Path = Path("/sys/devices/system/cpu")) -> str:
    """Returns the board's kinds of cores, their highest clock rate, and the Python that loops on them."""
    found = set[str]()
    try:
        lines = [line.partition(":") for line in cpuinfo.read_text().splitlines()]
        found |= {value.strip() for name, _, value in lines if name.strip() in PARTS}
        found |= {f"{file.read_text().strip()} kHz" for file in cpus.glob("cpu[0-9]*/cpufreq/cpuinfo_max_freq")}
    except OSError:  # a sandbox
        pass
    return " ".join([*sorted(found), platform.machine(), platform.python_version()])


def speed_untrusted(stored: bytes, kind: str) -> float:
    """Returns the speed that an agent before stored of a processor of `kind`; 0 where there is none."""
    try:
        found = json.loads(stored)
    except (ValueError, RecursionError):
        return 0.0
    its, value = (found.get("kind"), found.get("speed")) if isinstance(found, dict) else ("", 0.0)
    return float(value) if its == kind and isinstance(value, int | float) and 0 < value < 1e6 else 0.0


class CoreSpeed:
    """The greatest speed that this board has shown."""

    def __init__(self, folder: Path, kind: str, measure: Callable[[], float] = measured) -> None:
        """`folder`: of the agent's data; `kind`: of `processor`."""
        self._file, self._kind, self._measure, self._left = folder / FILE, kind, measure, LOOKS
        self.value = self._stored()

    def look(self) -> float:
        """Measures once more, `LOOKS` times in all. Returns the speed."""
        if self._left:
            self._left -= 1
            if (found := self._measure()) > NEWS * self.value:
                self.value = found
                self._store()
        return self.value

    def _stored(self) -> float:
        try:
            return speed_untrusted(self._file.read_bytes(), self._kind)
        except OSError:
            return 0.0

    def _store(self) -> None:
        try:
            replace_file(self._file, json.dumps({"kind": self._kind, "speed": self.value}))
        except OSError as error:
            log.debug("%s: the speed is measured anew after the next start: %s", self._file, error)
