"""Time on the virtual loop."""

from __future__ import annotations

import asyncio
import time

import pytest

from agent.simulation.loop import LoopClock, StandstillError, VirtualLoop


def test_an_hour_goes_by_at_once_and_in_the_order_of_the_timers() -> None:
    seen: list[tuple[float, str]] = []

    async def one(name: str, seconds: float) -> None:
        for _ in range(3):
            await asyncio.sleep(seconds)
            seen.append((asyncio.get_running_loop().time(), name))

    async def both() -> None:
        await asyncio.gather(one("slow", 3600.0), one("quick", 1000.0))

    began = time.monotonic()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(both())
    assert time.monotonic() - began < 60
    assert [name for _, name in seen] == ["quick", "quick", "quick", "slow", "slow", "slow"]
    assert [at for at, _ in seen] == pytest.approx([1000, 2000, 3000, 3600, 7200, 10800])


def test_work_for_threads_is_done_in_place_and_its_error_comes_to_who_waits() -> None:
    async def work() -> int:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(lambda: 41) + 1

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(work()) == 42


def test_tasks_that_all_wait_for_each_other_end_the_simulation_with_a_word() -> None:
    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    loop = VirtualLoop()
    try:
        with pytest.raises(StandstillError, match="every task waits"):
            loop.run_until_complete(wait())
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()


def test_a_wall_clock_jumps_and_the_other_one_does_not() -> None:
    loop = VirtualLoop(start=5.0)
    clock = LoopClock(loop, wall=1000.0)
    clock.jump(-3600.0)
    assert (clock.wall(), clock.monotonic()) == (1000.0 - 3600.0 + 5.0, 5.0)
    loop.close()
