"""Requests between agents over real sockets of loopback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agent.membership.events import Datagram
from agent.membership.members import Peer
from agent.network.transport import RequestError
from edgert.core.errors import EdgertError
from tests.agent.membership.worlds import introduce, started
from tests.waiting import in_loop, until


@in_loop
async def test_request_is_answered_by_the_registered_handler() -> None:
    a, b = await started("a"), await started("b")
    introduce(a, b)

    async def double(sender: str, args: Mapping[str, Any]) -> Any:
        if args["x"] is None:
            raise EdgertError("x: expected a number, got None")
        return {"for": sender, "result": args["x"] * 2}

    b.handlers["test.double"] = double
    try:
        assert await a.request("b", "test.double", {"x": "y" * 200_000}) == {"for": "a", "result": "y" * 400_000}
        with pytest.raises(RequestError, match="x: expected a number"):
            await a.request("b", "test.double", {"x": None})
        with pytest.raises(RequestError, match="unforeseen fault"):
            await a.request("b", "test.double", {})
        with pytest.raises(RequestError, match=r"expected one of .*test\.double"):
            await a.request("b", "test.none", {})
        with pytest.raises(RequestError, match="is unknown"):
            await a.request("c", "test.double", {})
    finally:
        await a.stop()
        await b.stop()


@in_loop
async def test_agent_with_another_key_gets_no_answer() -> None:
    a, b = await started("a", bytes(31) + b"x"), await started("b")
    introduce(a, b)
    try:
        with pytest.raises(RequestError, match="the connection failed"):
            await a.request("b", "membership.ping", {})
        assert b.sealer.drops == {"unknown key": 2}, "asked again by its address"
    finally:
        await a.stop()
        await b.stop()


@in_loop
async def test_newcomer_learns_the_table_of_its_seed() -> None:
    a, b = await started("a"), await started("b")
    a.membership.publish("board", b"state")
    b.membership.seeds = [a.membership.roster.own.address]
    a.run()
    b.run()
    try:
        await until(lambda: a.membership.roster.get("b"), "a to know b")
        await until(lambda: (m := b.membership.roster.get("a")) and "board" in m.sections, "b to know a's state")
    finally:
        await a.stop()
        await b.stop()


@in_loop
async def test_packet_that_is_too_large_is_counted_and_the_agent_goes_on() -> None:
    a = await started("a")
    a.membership._outputs = [Datagram(Peer("b", 1, ("127.0.0.1", 1)), bytes(size)) for size in (2_000, 1)]
    a.step()
    assert a.sealer.drops == {"too large to send": 1}
    assert a.frames.traffic.sent > 0
    assert a._timer is not None
    await a.stop()
