"""OS scheduling of a real Storm: the driver finds executors, threads and queues, and QS moves shares of the core."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agent.drivers.base import DriverError
from agent.drivers.entities import EngineReport, Thread
from agent.drivers.storm import StormDriver
from agent.osched.component import OsScheduling
from edgert.core.settings.agent import Sched
from tests.agent.osched.worlds import PROC, needs_nice
from tests.integration.osched.storm_rig import Storm, installed, storm

JARS = installed()
pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,  # five Java programs, and a minute until a topology runs
    needs_nice,
    pytest.mark.timeout(900),
    pytest.mark.skipif(JARS is None, reason="needs Apache Storm: run scripts/storm (30 MB)"),
    pytest.mark.skipif(shutil.which("jcmd") is None, reason="needs jcmd: apt install openjdk-17-jdk-headless"),
]
CPU = max(os.sched_getaffinity(0))
BURST, DEAR, CHEAP = 60_000, 1_000_000, 100_000
"""Rows; rounds of work per row: 1 ms and 0.1 ms or so."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storm]:
    assert JARS is not None
    with storm(tmp_path_factory.mktemp("storm"), JARS, CPU) as made:
        yield made


@pytest.fixture(autouse=True)
def no_topologies(cluster: Storm) -> Iterator[None]:
    yield
    cluster.kill_all()


def look(driver: StormDriver, topologies: set[str]) -> EngineReport:
    """A look in which every operator of these topologies has its threads."""
    seen = EngineReport("storm")
    for _ in range(100):
        with contextlib.suppress(DriverError):  # the machine is busy
            seen = asyncio.run(driver.report())
        if set(seen.queries) == topologies and all(o.threads for o in seen.operators.values()):
            return seen
        threading.Event().wait(0.5)
    raise AssertionError(seen)


def ran_s(threads: Sequence[Thread]) -> float:
    """CPU time since their start."""
    return sum(times.ran_s for thread in threads if (times := PROC.times(thread)) is not None)


def nices(threads: Sequence[Thread]) -> set[int]:
    return {seen.nice for t in threads if (seen := PROC.look(t.pid, t.tid)) is not None}


def test_the_bolt_with_the_longer_queue_gets_the_core_and_all_is_undone(cluster: Storm, tmp_path: Path) -> None:
    cluster.submit("two", BURST, DEAR, CHEAP)
    seen = look(StormDriver(cluster.address), {"two"})
    by_component = {o.instance.partition(" ")[0]: o for o in seen.operators.values()}
    assert set(by_component) == {"burst", "steady", "dear", "cheap"}
    dear, cheap = by_component["dear"], by_component["cheap"]
    assert by_component["burst"].successors == (dear.name,)
    queue = seen.metrics["queue_size"]
    print(f"queues: {queue}, cost: {seen.metrics['cost_s']}")
    assert queue[cheap.name] <= 20 < 1_000 < queue[dear.name] < BURST
    assert seen.metrics["cost_s"][dear.name] > 2 * seen.metrics["cost_s"][cheap.name]

    part = OsScheduling(Sched(policy="none"), "", tmp_path, drivers=[StormDriver(cluster.address)])

    async def share(policy: str) -> float:
        """CPU time of the dear bolt, as part of both bolts'."""
        part.scheduler.use(policy)
        for turn in range(4):
            await part.scheduler.turn()
            if turn == 1:
                before = ran_s(dear.threads), ran_s(cheap.threads)
            await asyncio.sleep(3.0)
        if policy == "qs":
            assert max(nices(dear.threads)) < min(nices(cheap.threads))
        got = ran_s(dear.threads) - before[0], ran_s(cheap.threads) - before[1]
        return got[0] / sum(got)

    async def by_turns() -> dict[str, float]:
        found = {policy: await share(policy) for policy in ("none", "qs")}
        await part.scheduler.stop()
        return found

    shares = asyncio.run(by_turns())
    print(f"the dear bolt's part of the core: {shares}")
    assert shares["qs"] > shares["none"] + 0.15
    assert shares["qs"] > 0.8
    assert nices([t for o in seen.operators.values() for t in o.threads]) == {0}


def test_components_of_one_name_in_two_topologies_are_told_apart_by_their_workers(cluster: Storm) -> None:
    for name in ("left", "right"):
        cluster.submit(name, 10, CHEAP, CHEAP)
    seen = look(StormDriver(cluster.address), {"left", "right"})
    assert not [note for note in seen.notes if "left alone" in note]
    for operator in seen.operators.values():
        assert len(operator.threads) == 2, "its own thread, and the one that sends its rows"
        for thread in operator.threads:
            command = Path(f"/proc/{thread.pid}/cmdline").read_bytes().split(b"\0")
            assert any(part.startswith(f"-Dstorm.id={operator.query}-".encode()) for part in command)
            name = Path(f"/proc/{thread.pid}/task/{thread.tid}/comm").read_text()
            assert name.startswith("Thread-")
