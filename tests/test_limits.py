"""Limits of control groups, from files as the kernel writes them."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from agent import capacity
from edgert.limits import Limits, limits


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def found(root: Path, files: dict[str, str], cgroup: str) -> Limits:
    write(root, {**{f"groups/{name}": text for name, text in files.items()}, "proc/7/cgroup": cgroup})
    return limits(7, root / "proc", root / "groups")


def test_version_2_the_least_limit_on_the_way_up_holds(tmp_path: Path) -> None:
    files = {
        "system.slice/cpu.max": "150000 100000\n",
        "system.slice/memory.max": "1073741824\n",
        "system.slice/edgert.service/cpu.max": "max 100000\n",
        "system.slice/edgert.service/memory.max": "2147483648\n",
    }
    assert found(tmp_path, files, "0::/system.slice/edgert.service\n") == (1.5, 2**30)


def test_version_1_by_controller(tmp_path: Path) -> None:
    files = {
        "cpu/lab/cpu.cfs_quota_us": "30000\n",
        "cpu/lab/cpu.cfs_period_us": "100000\n",
        "cpu/cpu.cfs_quota_us": "-1\n",
        "cpu/cpu.cfs_period_us": "100000\n",
        "memory/lab/memory.limit_in_bytes": "805306368\n",
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
    }
    assert found(tmp_path, files, "4:memory:/lab\n3:cpu,cpuacct:/lab\n0::/\n") == (0.3, 805306368)


@pytest.mark.parametrize("cgroup", ["0::/\n", "0::/../outside\n", ""])
def test_without_limits(tmp_path: Path, cgroup: str) -> None:
    assert found(tmp_path, {"cgroup.controllers": "cpu memory\n"}, cgroup) == (inf, inf)


def test_damaged_files_are_no_limit(tmp_path: Path) -> None:
    assert found(tmp_path, {"a/cpu.max": "many\n", "a/memory.max": ""}, "0::/a\n") == (inf, inf)


def test_capacity_is_what_the_groups_leave() -> None:
    board = {"cores": 4, "speed": 20.0, "memory_mib": 1000}
    assert capacity.within(board, Limits(inf, inf)) == board
    assert capacity.within(board, Limits(0.3, 768 * 2**20)) == {"cores": 0.3, "speed": 20.0, "memory_mib": 768}
