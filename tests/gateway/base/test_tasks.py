"""Work that is waited for in any case."""

from __future__ import annotations

import asyncio

import pytest

from gateway.base.tasks import to_its_end
from tests.waiting import in_loop


@in_loop
async def test_who_is_cancelled_holds_his_lock_until_the_work_has_ended() -> None:
    lock, goes_on, done = asyncio.Lock(), asyncio.Event(), []

    async def work() -> None:
        await goes_on.wait()
        done.append(lock.locked())

    async def with_lock() -> None:
        async with lock:
            await to_its_end(work())

    task = asyncio.create_task(with_lock())
    for _ in range(3):  # also if it is cancelled more than once
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [True]
    assert not lock.locked()


@in_loop
async def test_it_gives_what_the_work_gives_or_raises() -> None:
    async def give() -> int:
        return 3

    async def fail() -> None:
        raise OSError("no")

    assert await to_its_end(give()) == 3
    with pytest.raises(OSError, match="no"):
        await to_its_end(fail())
