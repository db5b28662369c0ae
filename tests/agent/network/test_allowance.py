"""Large messages get their bytes in turns of members."""

from __future__ import annotations

import asyncio

import pytest

from agent.network import allowance
from agent.network.allowance import SMALL_BYTES, Allowance
from tests.waiting import in_loop, until

LARGE = 4 * SMALL_BYTES


@in_loop
async def test_members_get_bytes_in_turn_and_never_more_than_all() -> None:
    given, order, most = Allowance(2 * LARGE), list[str](), 0

    async def message(member: str) -> None:
        nonlocal most
        async with given.of(member, LARGE):
            order.append(member)
            most = max(most, given.used)
            await asyncio.sleep(0)

    async with given.of("first", 2 * LARGE):
        tasks = [asyncio.create_task(message(member)) for member in [*["liar"] * 8, "honest"]]
        await asyncio.sleep(0)
        assert order == []
        async with given.of("liar", SMALL_BYTES):
            assert given.used == 2 * LARGE, "small messages need none"
    await asyncio.gather(*tasks)
    assert order.index("honest") <= 1, "behind one message of the liar, not behind eight"
    assert (most, given.used, len(order)) == (2 * LARGE, 0, 9)


@in_loop
async def test_message_that_waits_and_is_given_up_leaves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Allowance(LARGE)
    async with given.of("a", LARGE):
        task = asyncio.create_task(given.of("b", LARGE).__aenter__())
        await until(lambda: given._waiting, "b to wait")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not given._waiting
        monkeypatch.setattr(allowance, "PATIENCE_S", 0.01)
        with pytest.raises(TimeoutError):
            async with given.of("c", LARGE):
                raise AssertionError("there are no bytes")
        assert not given._waiting
    assert given.used == 0
    async with given.of("b", 2 * LARGE):
        assert given.used == LARGE, "a message that is larger than all has all"
