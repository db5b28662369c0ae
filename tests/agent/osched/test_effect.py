"""What nice values, groups and slices do to CPU time: two busy processes on one core."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.osched.kernel.actions import SetGroup, SetNice
from agent.osched.kernel.door import Door
from agent.osched.kernel.grouping import incomparable
from agent.osched.kernel.rights import abilities
from tests.agent.osched.worlds import BUSY, PROC, Worker, needs_nice, worker
from tests.waiting import wait_until

pytestmark = [needs_nice, pytest.mark.integration]
ENOUGH_S = 0.3


def shares(*processes: Worker) -> list[float]:
    """Part of their CPU time that each process gets, until each has run for `ENOUGH_S`: others may want the core."""

    def ran() -> list[float]:
        return [times.ran_s if (times := PROC.times(p.threads()[0])) else 0.0 for p in processes]

    before = ran()

    def got() -> list[float]:
        return [after - then for after, then in zip(ran(), before, strict=True)]

    wait_until(lambda: min(got()) >= ENOUGH_S, "CPU time of each", progress=got, poll_s=0.05)
    found = got()
    return [each / sum(found) for each in found]


def test_nice_0_against_10_is_about_10_to_1(tmp_path: Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    door = Door(tmp_path / "journal")
    with worker(BUSY, cpu=cpu) as a, worker(BUSY, cpu=cpu) as b:
        door.apply([SetNice(a.threads()[0], 0), SetNice(b.threads()[0], 10)])
        first, second = shares(a, b)
        door.close()
    # The kernel's weights: 1024 and 110, so 9.3 to 1.
    assert 7 < first / second < 12


def test_sessions_hide_nice_values_until_one_group_holds_both(tmp_path: Path) -> None:
    able = abilities()
    if able.cgroups is None or not PROC.autogroup_on():
        pytest.skip("needs autogroups and a cgroup with the cpu controller to write to")
    cpu = max(os.sched_getaffinity(0))
    door = Door(tmp_path / "journal", able)
    with worker(BUSY, cpu=cpu, session=True) as a, worker(BUSY, cpu=cpu, session=True) as b:
        nice = [SetNice(a.threads()[0], 0), SetNice(b.threads()[0], 10)]
        door.apply(nice)
        why = incomparable([a.pid, b.pid], PROC, able.cgroups)
        assert "2 sessions" in why or "2 control groups" in why
        first, second = shares(a, b)
        assert first / second < 2, "each session gets the same, whatever its threads' nice values"
        door.apply([*nice, SetGroup("", 2.0, (a.threads()[0], b.threads()[0]))])
        assert incomparable([a.pid, b.pid], PROC, able.cgroups) == ""
        first, second = shares(a, b)
        door.close()
    assert 7 < first / second < 12
