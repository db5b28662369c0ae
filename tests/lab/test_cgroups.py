"""Limits by control groups."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.lab.cgroups import Group, remove_left_behind, settings

BUSY = """
import time
print(flush=True)
input()
end = time.monotonic() + 2.0
while time.monotonic() < end:
    pass
print(time.process_time(), flush=True)
"""


def test_settings_are_those_of_the_kernels_versions() -> None:
    assert settings(1, 1.5, 2048) == {
        "cpu": {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"},
        "memory": {"memory.limit_in_bytes": "2147483648"},
    }
    assert settings(2, 0.3, 768) == {"": {"cpu.max": "30000 100000", "memory.max": "805306368"}}
    assert settings(1, 0, 0) == settings(2, 0, 0) == {}
    assert settings(1, 0.3, 0).keys() == {"cpu"}


@pytest.mark.root
def test_a_group_holds_a_process_to_its_cores() -> None:
    try:
        group = Group("test", 0.3, 64)
    except OSError as error:
        pytest.skip(f"this process may make no control groups: {error}")
    try:
        command = group.command([sys.executable, "-c", BUSY])
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        before = sum(psutil.Process(process.pid).cpu_times()[:2])
        out, _ = process.communicate(b"\n")
        assert float(out) - before < 0.3 * 2.0 + 0.15
    finally:
        group.close()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/edgert-lab-{os.getpid()}-test"))


def test_groups_of_laboratories_that_were_killed_are_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    old, own, other = (
        tmp_path / "cpu" / f"{name}" for name in (f"edgert-lab-{dead.pid}-g1", f"edgert-lab-{os.getpid()}-g1", "x")
    )
    for folder in (old, own, other):
        folder.mkdir(parents=True)
    remove_left_behind(tmp_path)
    assert (old.exists(), own.exists(), other.exists()) == (False, True, True)
