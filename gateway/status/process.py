"""Memory, CPU and disk of the gateway's own process."""

from __future__ import annotations

from typing import Any

import psutil


class ProcessFigures:
    """Figures of this process; of CPU those between the last two looks."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent()
        self._cpu = 0.0

    def look(self) -> None:
        """Takes the CPU since the look before."""
        self._cpu = self._process.cpu_percent()

    def plain(self) -> dict[str, Any]:
        """For the status."""
        rss_bytes = self._process.memory_info().rss
        return {"rss_bytes": rss_bytes, "cpu_percent": self._cpu, "written_bytes": self._written_bytes()}

    def _written_bytes(self) -> int | None:
        """None where the kernel does not count it."""
        try:
            return int(self._process.io_counters().write_bytes)
        except (psutil.Error, OSError, NotImplementedError):
            return None
