"""The cores of this board by the kernel.

/sys/devices/system/cpu/cpu<N>/cpu_capacity        of a core, 1024 is the fastest of the board (Arm; by the device tree)
/sys/devices/system/cpu/cpu<N>/cpufreq/cpuinfo_max_freq      kHz; counts where a kernel has no cpu_capacity
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from agent.osched.kernel.clusters import Clusters, clusters_of

CPUS: Final = Path("/sys/devices/system/cpu")
MODEL: Final = Path("/proc/device-tree/model")
CAPACITY: Final = "cpu_capacity"
FREQUENCY: Final = "cpufreq/cpuinfo_max_freq"


def find(cpus: Path = CPUS) -> Clusters | None:
    """Finds this board's clusters; None where all cores are alike, or the kernel does not tell."""
    for name in (CAPACITY, FREQUENCY):
        known = {
            int(folder.name[3:]): value
            for folder in cpus.glob("cpu[0-9]*")
            if (value := _number(folder / name)) is not None
        }
        if known:
            return clusters_of(known)
    return None


def on_by_default(model: Path = MODEL) -> bool:
    """True if this is a board on which fast cores are worth choosing: an Odroid-XU4 (four Cortex-A15, four A7)."""
    try:
        text = model.read_bytes().rstrip(b"\0").decode(errors="replace")
    except OSError:
        return False
    return "Odroid" in text and "XU4" in text


def _number(file: Path) -> float | None:
    try:
        return float(file.read_text())
    except (OSError, ValueError):
        return None
