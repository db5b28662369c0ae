"""Share and quota of a control group → the files of either version, and what to write into them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

V1_SHARES: Final = (2, 262_144)
V1_USUAL: Final = 1024
V2_WEIGHT: Final = (1, 10_000)
V2_USUAL: Final = 100
PERIOD_US: Final = 100_000
"""Period of a quota: the kernel's default."""


def _bounded(share: float, usual: int, bounds: tuple[int, int]) -> int:
    return min(bounds[1], max(bounds[0], round(share * usual)))


def v1_files(share: float, quota: float | None) -> dict[str, str]:
    """Files of a group of cgroup version 1 -> what to write."""
    files = {"cpu.shares": str(_bounded(share, V1_USUAL, V1_SHARES))}
    files["cpu.cfs_quota_us"] = "-1" if quota is None else str(max(1000, round(quota * PERIOD_US)))
    return files


def v2_files(share: float, quota: float | None) -> dict[str, str]:
    """Files of a group of cgroup version 2 -> what to write."""
    limit = "max" if quota is None else str(max(1000, round(quota * PERIOD_US)))
    return {"cpu.weight": str(_bounded(share, V2_USUAL, V2_WEIGHT)), "cpu.max": f"{limit} {PERIOD_US}"}


Files = Callable[[float, float | None], dict[str, str]]
"""`v1_files` or `v2_files`."""
