"""OS scheduling of a real Flink: shares follow nice values, QS evens out queues, and nobody starves beside edgert."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import statistics
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agent.drivers.base import DriverError
from agent.drivers.entities import EngineReport, Thread
from agent.drivers.flink import FlinkDriver
from agent.osched import answers
from agent.osched.component import OsScheduling
from agent.osched.kernel.actions import SetNice
from agent.osched.kernel.door import Door
from edgert.core.settings.agent import Sched
from tests.agent.osched.worlds import PROC, needs_nice
from tests.integration.osched.flink_rig import Flink, flink, installed, query
from tests.integration.osched.two_slots import two_slots
from tests.integration.rig import Gateway, Rig
from tests.waiting import until

JARS = installed()
pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,  # two Java programs, and half a minute per measurement
    needs_nice,
    pytest.mark.timeout(900),
    pytest.mark.skipif(JARS is None, reason="needs Apache Flink: run scripts/flink (330 MB)"),
    pytest.mark.skipif(shutil.which("jcmd") is None, reason="needs jcmd: apt install openjdk-17-jdk-headless"),
]
CPU = max(os.sched_getaffinity(0))
HASH = "MD5(CAST(v AS STRING))"
"""Takes some four times as long as making the row."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    assert JARS is not None
    with flink(tmp_path_factory.mktemp("flink"), JARS, CPU) as made:
        yield made


@pytest.fixture(autouse=True)
def no_queries(cluster: Flink) -> Iterator[None]:
    yield
    cluster.cancel_all()


def report(driver: FlinkDriver, queries: Sequence[str]) -> EngineReport:
    """A look in which every operator has its threads."""
    seen = EngineReport("flink")
    for _ in range(100):
        with contextlib.suppress(DriverError):  # the machine is busy
            seen = asyncio.run(driver.report())
        if set(seen.queries) == set(queries) and all(o.threads for o in seen.operators.values()):
            return seen
        threading.Event().wait(0.5)
    raise AssertionError(seen)


def threads_of(seen: EngineReport, name: str) -> list[Thread]:
    return sorted({thread for o in seen.operators.values() if o.query == name for thread in o.threads})


def ran_s(threads: Sequence[Thread]) -> float:
    """CPU time since their start."""
    return sum(times.ran_s for thread in threads if (times := PROC.times(thread)) is not None)


def parts(groups: dict[str, list[Thread]], seconds: float) -> dict[str, float]:
    """Part of the CPU time of all groups that each one gets."""
    before = {name: ran_s(threads) for name, threads in groups.items()}
    threading.Event().wait(seconds)
    got = {name: ran_s(threads) - before[name] for name, threads in groups.items()}
    return {name: each / sum(got.values()) for name, each in got.items()}


def test_shares_of_two_queries_on_one_core_follow_nice_values(cluster: Flink, tmp_path: Path) -> None:
    for letter in "ab":
        cluster.submit(f"query-{letter}", *query(letter, HASH))
    seen = report(FlinkDriver(cluster.address), ["query-a", "query-b"])
    groups = {name: threads_of(seen, name) for name in seen.queries}
    door = Door(tmp_path / "journal")
    try:
        for first, second in (("query-a", "query-b"), ("query-b", "query-a")):
            door.apply([SetNice(t, nice) for name, nice in ((first, 0), (second, 10)) for t in groups[name]])
            threading.Event().wait(1.0)
            got = parts(groups, 10.0)
            print(f"{first} at 0, {second} at 10: {got[first] / got[second]:.1f} : 1")
            assert 6 < got[first] / got[second] < 14, "weights 1024 and 110: 9.3 : 1"
    finally:
        door.close()
    assert {PROC.look(t.pid, t.tid).nice for of in groups.values() for t in of} == {0}  # type: ignore[union-attr]


def test_queue_size_lowers_the_variance_of_queues_of_a_query_with_one_costly_operator(
    cluster: Flink, tmp_path: Path
) -> None:
    cluster.submit("query-c", *query("c", HASH), chained=False)
    part = OsScheduling(Sched(), "", tmp_path, drivers=[FlinkDriver(cluster.address)])
    report(FlinkDriver(cluster.address), ["query-c"])
    variances: dict[str, list[float]] = {"none": [], "qs": []}

    async def measure(policy: str) -> None:
        part.scheduler.use(policy)
        for look in range(60):
            await part.scheduler.look() if look else await part.scheduler.turn()
            queues = part.scheduler.reports["flink"].metrics["queue_size"]
            if look >= 15:
                variances[policy].append(statistics.pvariance(queues.values()))
            await asyncio.sleep(0.1)

    async def by_turns() -> None:
        for policy in ("none", "qs", "none", "qs"):
            await measure(policy)
        await part.scheduler.stop()

    asyncio.run(by_turns())
    means = {policy: statistics.fmean(of) for policy, of in variances.items()}
    print(f"mean variance of queues (buffers²): {means}")
    assert means["qs"] < 0.8 * means["none"]


@pytest.fixture
def gateway(rig: Rig) -> Gateway:
    """Two flows, each in a slot of its own, on the core that Flink has."""
    made = two_slots(rig)
    assert made.process is not None
    for slot in PROC.children()[made.process.pid]:
        for seen in PROC.threads(slot):
            os.sched_setaffinity(seen.thread.tid, {CPU})
    return made


def test_edgert_and_flink_get_equal_shares_per_query_with_qs_inside(
    cluster: Flink, rig: Rig, gateway: Gateway, tmp_path: Path
) -> None:
    queries = ["query-a", "query-b"]
    for name in queries:
        letter = name[-1]
        cluster.submit(name, *query(letter, f"CONCAT('{letter}', {HASH})"), chained=False)
    report(FlinkDriver(cluster.address), queries)
    drivers = (f"edgert={gateway.data / 'control.sock'}", f"flink={cluster.address}")
    part = OsScheduling(Sched(policy="qs every 500 ms", mechanism="groups+nice", drivers=drivers), "", tmp_path)
    if part.scheduler.door.able.cgroups is None:
        pytest.skip("needs a cgroup with the cpu controller to write to")
    messages = [(f"{('hot', 'cold')[n % 2]}/d{n % 9}", b'{"v": 1}') for n in range(30_000)]
    publisher = rig.publishing(messages, rate=1_000.0)  # twice 2 ms of CPU time each: twice the core

    def threads(name: str) -> list[Thread]:
        return [t for of in part.scheduler.reports.values() if name in of.queries for t in threads_of(of, name)]

    async def story() -> dict[str, float]:
        running = asyncio.ensure_future(part.run())
        await until(lambda: all(map(threads, ("hot", "cold", *queries))), "threads of all queries", 120.0)
        await asyncio.sleep(3.0)
        groups = {name: threads(name) for name in ("hot", "cold", *queries)}
        got = await asyncio.to_thread(parts, groups, 15.0)
        status = answers.status(part.scheduler)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        assert status["errors"] == []
        for name in queries:
            nices = {row["metrics"]["queue_size"]: row["nice"] for row in status["operators"] if row["query"] == name}
            assert nices[max(nices)] == 0 < nices[min(nices)], "the longest queue goes first"
        return got

    got = asyncio.run(story())
    print("parts of the core:", {name: round(part, 2) for name, part in got.items()})
    assert all(0.15 < part < 0.4 for part in got.values()), got
    publisher.join()
