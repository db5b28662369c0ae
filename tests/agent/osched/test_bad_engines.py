"""An engine that fails, or tells nonsense, changes nothing for the other engines of the board."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.drivers.base import Driver
from agent.drivers.entities import EngineReport, Operator, Query, Thread
from agent.osched.kernel.actions import SetNice
from agent.osched.kernel.door import Door
from agent.osched.kernel.rights import Abilities
from agent.osched.normalise import PrioritySmoothing
from agent.osched.policy.policies import POLICIES
from agent.osched.schedule import Mechanism, decide
from agent.osched.scheduler import PATIENCE_S, Scheduler
from agent.simulation.loop import VirtualLoop
from edgert.core.clock import VirtualClock
from edgert.core.errors import EdgertError
from edgert.core.settings.agent import Sched
from tests.agent.osched.worlds import needs_nice, worker

UNABLE = Abilities(nice=False, slice_ns=None, cgroups=None)


def told(driver: str, pid: int, queues: dict[str, Any]) -> EngineReport:
    """An operator per queue, each with a thread of its own."""
    operators = {
        name: Operator(name, "q", threads=(Thread(pid, pid + at, 7),)) for at, name in enumerate(sorted(queues))
    }
    return EngineReport(driver, operators, {"q": Query("q")}, {"queue_size": queues})


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_a_priority_that_is_no_finite_number_is_left_alone_and_said(odd: float) -> None:
    reports = [told("a", 100, {"x": odd, "y": 10.0}), told("b", 200, {"z": 100.0})]
    schedule = decide(reports, POLICIES["qs"], Mechanism(), random.random, PrioritySmoothing(0.5))
    assert schedule.actions == [SetNice(Thread(100, 101, 7), 10), SetNice(Thread(200, 200, 7), 0)]
    assert schedule.errors == [f"driver a: expected finite priorities, got {odd} for x: left alone"]


def test_a_report_of_another_form_is_left_out_and_said() -> None:
    reports = [told("a", 100, {"x": "many"}), told("b", 200, {"y": 10.0, "z": 100.0})]
    schedule = decide(reports, POLICIES["qs"], Mechanism(), random.random)
    assert schedule.actions == [SetNice(Thread(200, 200, 7), 10), SetNice(Thread(200, 201, 7), 0)]
    (error,) = schedule.errors
    assert error.startswith("driver a: expected entities as its interface says, got ")


def test_priorities_of_all_engines_are_smoothed() -> None:
    """The priorities of each are 100, then 0: half of the old ones counts."""
    smoothing = PrioritySmoothing(0.5)
    for queue in (100.0, 0.0):
        reports = [told("a", 100, {"x": queue}), told("b", 200, {"y": queue})]
        schedule = decide(reports, POLICIES["qs"], Mechanism(), random.random, smoothing)
    assert schedule.priorities == {"a": {"x": 50.0}, "b": {"y": 50.0}}


class Failing:
    """A third party's driver, with a fault."""

    name = "failing"

    async def report(self) -> EngineReport:
        raise KeyError("jobs")

    async def close(self) -> None: ...


class Working:
    """Two threads of a process."""

    name = "working"

    def __init__(self, threads: list[Thread]) -> None:
        operators = {str(n): Operator(str(n), "q", threads=(thread,)) for n, thread in enumerate(threads)}
        self._report = EngineReport("working", operators, {"q": Query("q")}, {"queue_size": {"0": 100.0, "1": 10.0}})

    async def report(self) -> EngineReport:
        return self._report

    async def close(self) -> None: ...


@needs_nice
def test_a_driver_with_a_fault_is_said_and_the_other_engine_is_scheduled(tmp_path: Path) -> None:
    async def story() -> None:
        with worker(threads=1) as process:
            drivers: list[Driver] = [Failing(), Working(process.threads())]
            made = Scheduler(Sched(), drivers, Door(tmp_path / "journal"), VirtualClock(), random.random)
            await made.turn()
            assert made.errors == {"failing": "failing: the driver failed: KeyError('jobs')"}
            assert process.nices() == [0, 10]
            await made.stop()
            assert process.nices() == [0, 0]

    asyncio.run(story())


def test_a_range_of_nice_values_that_is_upside_down_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(EdgertError, match=r"sched\.nice_best: expected at most sched\.nice_worst .*, got 10 and 5"):
        Scheduler(
            Sched(nice_best=10, nice_worst=5), [], Door(tmp_path / "journal", UNABLE), VirtualClock(), random.random
        )


class Slow(Working):
    """Answers when it is let."""

    name = "slow"

    def __init__(self, threads: list[Thread]) -> None:
        super().__init__(threads)
        self.let, self.asked = asyncio.Event(), 0

    async def report(self) -> EngineReport:
        self.asked += 1
        await self.let.wait()
        return replace(self._report, driver="slow")


@needs_nice
def test_an_engine_that_takes_long_holds_up_no_other(tmp_path: Path) -> None:
    async def story() -> None:
        with worker(threads=1) as a, worker(threads=1) as b:
            slow, clock = Slow(a.threads()), VirtualClock()
            drivers: list[Driver] = [slow, Working(b.threads())]
            made = Scheduler(Sched(), drivers, Door(tmp_path / "journal"), clock, random.random)
            await made.turn()
            for _ in range(3):
                assert (a.nices(), b.nices()) == ([0, 0], [0, 10])
                await made.look()
            assert slow.asked == 1, "its look goes on"
            slow.let.set()
            while "slow" not in made.reports:
                await made.look()
            assert (a.nices(), b.nices()) == ([0, 10], [0, 10])
            slow.let.clear()
            await made.look()
            assert a.nices() == [0, 10], "the look before counts"
            clock.advance(PATIENCE_S + 1.0)
            await made.look()
            assert (a.nices(), b.nices()) == ([0, 0], [0, 10]), "for some seconds"
            await made.stop()
            assert b.nices() == [0, 0]

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())


def test_two_engines_of_one_kind_are_refused_as_each_would_take_the_others_place(tmp_path: Path) -> None:
    door = Door(tmp_path / "journal", UNABLE)
    with pytest.raises(EdgertError, match=r"sched\.drivers: expected engines of different kinds, got failing, failing"):
        Scheduler(Sched(), [Failing(), Failing()], door, VirtualClock(), random.random)


@needs_nice
def test_an_engine_that_never_answers_holds_up_neither_another_policy_nor_the_end(tmp_path: Path) -> None:
    """Its threads were not put back, `policy none` was not answered, and SIGTERM did not end the agent."""

    async def story() -> None:
        with worker(threads=1) as process:
            slow, clock = Slow(process.threads()), VirtualClock()
            made = Scheduler(Sched(), [slow], Door(tmp_path / "journal"), clock, random.random)
            slow.let.set()
            await made.turn()
            assert process.nices() == [0, 10]
            slow.let.clear()
            clock.advance(10.0)
            await made.turn()
            made.use("none")
            await made.turn()
            assert (made.running.policy, process.nices()) == ("none", [0, 0])
            await made.stop()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())
