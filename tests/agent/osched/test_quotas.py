"""The setting `sched.quotas`: cores that a query may use at most."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from agent.drivers.entities import EngineReport, Operator, Query, Thread
from agent.osched.kernel.actions import SetGroup
from agent.osched.kernel.door import Door
from agent.osched.kernel.rights import abilities
from agent.osched.policy.policies import POLICIES
from agent.osched.schedule import Mechanism, decide
from agent.osched.scheduler import quotas
from edgert.core.errors import EdgertError
from edgert.core.settings.agent import Sched
from tests.agent.osched.worlds import BUSY, PROC, needs_nice, worker
from tests.waiting import wait_until


def ran_s(thread: Thread) -> float:
    times = PROC.times(thread)
    assert times is not None
    return times.ran_s


def test_the_group_of_a_query_has_its_quota() -> None:
    limits = quotas(Sched(mechanism="groups", quotas=("a=b=0.5", "other=2")))
    assert limits == {"a=b": 0.5, "other": 2.0}
    operators = {name: Operator(name, name, threads=(Thread(9, at, 7),)) for at, name in enumerate(("a=b", "q"))}
    report = EngineReport(
        "e", operators, {n: Query(n) for n in operators}, {"queue_size": dict.fromkeys(operators, 1.0)}
    )
    schedule = decide([report], POLICIES["qs"], Mechanism("groups", quotas=limits), random.random)
    assert [(a.group, a.quota) for a in schedule.actions if isinstance(a, SetGroup)] == [("a=b", 0.5), ("q", None)]


@pytest.mark.parametrize("text", ["report", "=1", "report=", "report=many", "report=0", "report=nan", "report=-1"])
def test_what_is_no_quota_is_refused(text: str) -> None:
    with pytest.raises(EdgertError, match=r"sched\.quotas: expected QUERY=CORES with 0\.01 to 4096 cores, got "):
        quotas(Sched(mechanism="groups+nice", quotas=(text,)))


def test_a_quota_without_groups_is_refused() -> None:
    with pytest.raises(EdgertError, match=r"expected groups or groups\+nice as sched\.mechanism, got nice"):
        quotas(Sched(quotas=("report=0.5",)))


@needs_nice
@pytest.mark.integration
def test_a_quota_of_a_quarter_of_a_core_holds_on_an_idle_core(tmp_path: Path) -> None:
    able = abilities()
    if able.cgroups is None:
        pytest.skip("needs a cgroup with the cpu controller to write to")
    door = Door(tmp_path / "journal", able)
    with worker(BUSY, cpu=max(os.sched_getaffinity(0))) as busy:
        (thread,) = busy.threads()
        door.apply([SetGroup("report", 1.0, (thread,), 0.25)])
        began, before = time.monotonic(), ran_s(thread)
        wait_until(lambda: ran_s(thread) - before >= 0.5, "half a second of CPU time")
        took_s, took_cpu_s = time.monotonic() - began, ran_s(thread) - before
        door.close()
    assert took_cpu_s < 0.4 * took_s
