"""The machine that figures come from: without it they say nothing."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import psutil


def describe() -> dict[str, Any]:
    """Processor, cores, memory, kernel, Python, and how busy the machine was before the run."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_mb": round(psutil.virtual_memory().total / 1e6),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": load(),
    }


def load() -> list[float]:
    """The load averages of the last 1, 5 and 15 minutes (runnable tasks)."""
    return [round(value, 2) for value in os.getloadavg()]


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """As the kernel names it; boards have a `Model` line (of the board) where others have `model name`."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return fields.get("model name") or fields.get("Model") or platform.machine()
