"""Connections of those who have no key: all that they recorded, held open, cut short or made up is counted and costs
little. Over real sockets of loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import struct
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.membership.files import HELLO_FILE, stamp
from agent.membership.members import State
from agent.membership.messages import Claim
from agent.membership.packets import ANYBODY, GREETING_BYTES, MAX_FRAME, Frame, hello_at, hello_to
from agent.network.transport import MAX_OF_MEMBER, MAX_WAITING, RequestError, Transport
from edgert.core.packing import pack
from tests.agent.membership.worlds import answered, introduce, recorder, sealed, started
from tests.waiting import in_loop, until

CONNECTIONS = int(os.environ.get("EDGERT_FUZZ_PACKETS", "4000")) // 20
VERB = "fleet.coordinate"


def counting(board: Transport, calls: list[str]) -> None:
    async def handler(sender: str, args: Mapping[str, Any]) -> Any:
        calls.append(f"{args['remove']} at {board.membership.name} for {sender}")
        return "done"

    board.handlers[VERB] = handler


@in_loop
async def test_recorded_request_is_carried_out_nowhere_again() -> None:
    a, b, c = await started("a"), await started("b"), await started("c")
    calls: list[str] = []
    for board in (b, c):
        counting(board, calls)
    introduce(a, b)
    async with recorder(b) as (address, record):
        assert await a.ask(address, VERB, {"remove": "air"}, expected="b") == "done"
    assert calls == ["air at b for a"]
    assert await answered(b, bytes(record)) == b""
    assert await answered(c, bytes(record)) == b"", "it is no receiver of the hello"
    assert (b.sealer.drops, c.sealer.drops) == ({"replay": 1}, {"bad tag": 1})
    await b.stop()
    b = await started("b", epoch=2)
    counting(b, calls)
    assert await answered(b, bytes(record)) == b"", "its windows are empty, and its epoch is another"
    assert b.sealer.drops == {"bad tag": 1}
    assert calls == ["air at b for a"]
    for board in (a, b, c):
        await board.stop()


@pytest.mark.parametrize("state", [State.ALIVE, State.DEAD])
def test_recorded_hello_of_an_exchange_of_tables_is_answered_by_no_third_board(state: State) -> None:
    """It named no receiver, though the member at that address was known: each other board greeted it once."""

    @in_loop
    async def test() -> None:
        a, b, c = await started("a"), await started("b"), await started("c")
        async with recorder(b) as (address, record):
            for one in dict.fromkeys([State.ALIVE, state]):
                a.membership.claims.consider(Claim("b", 1, 9, one, *address, "b"), 0.0)
            a.run()
            await until(lambda: len(record) > 100, "a to ask for a table")
            await a.stop()
        hello = bytes(record[: 4 + int.from_bytes(record[:4], "little")])
        assert await answered(c, hello) == b""
        assert await answered(b, hello) == b""
        assert (b.sealer.drops, c.sealer.drops) == ({"replay": 1}, {"bad tag": 1})
        await b.stop()
        await c.stop()

    test()


@in_loop
async def test_connection_carries_one_request_out_however_often_it_holds_it() -> None:
    a, b = await started("a"), await started("b")
    calls: list[str] = []
    counting(b, calls)
    reader, writer = await asyncio.open_connection(*b.membership.roster.own.address)
    a.frames.write(writer, b"", hello_to(b.membership.roster.own.peer))
    greeting = await reader.readexactly(GREETING_BYTES)
    a.frames.write(writer, pack(["token", VERB]), Frame(greeting, "b", "head"))
    a.frames.write(writer, pack(["token"]) + pack({"remove": "air"}), Frame(greeting, "b", "body"))
    a.frames.write(writer, pack(["token", VERB]), Frame(greeting, "b", "head"))
    a.frames.write(writer, pack(["token"]) + pack({"remove": "air"}), Frame(greeting, "b", "body"))
    with contextlib.suppress(ConnectionError):
        await reader.read()
    assert calls == ["air at b for a"]
    writer.close()
    await a.stop()
    await b.stop()


@pytest.mark.parametrize("to", ["c", ANYBODY])
def test_request_that_is_passed_on_to_another_board_is_not_carried_out_there(to: str) -> None:
    @in_loop
    async def test() -> None:
        a, c = await started("a"), await started("c")
        calls: list[str] = []
        counting(c, calls)
        async with recorder(c) as (address, _):  # `a` takes it for `b`, or for anybody
            with pytest.raises(RequestError, match="the connection failed"):
                await a.ask(address, VERB, {"remove": "air"}, expected="b" if to == "c" else ANYBODY)
        assert calls == []
        await a.stop()
        await c.stop()

    test()


@in_loop
async def test_answer_of_an_earlier_request_is_not_taken() -> None:
    a, b = await started("a"), await started("b")
    counting(b, [])
    answers = bytearray()

    async def replayed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not answers:
            upwards, to_board = await asyncio.open_connection(*b.membership.roster.own.address)
            to_board.write(await reader.read(65_536))
            answers.extend(greeting := await upwards.readexactly(GREETING_BYTES))
            writer.write(greeting)
            to_board.write(await reader.read(65_536))
            answers.extend(await upwards.read())
            writer.write(answers[GREETING_BYTES:])
            to_board.close()
        else:
            writer.write(answers)
            await asyncio.sleep(0)
            await reader.read()
        writer.close()

    introduce(a, b)
    server = await asyncio.start_server(replayed, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()[:2]
    assert await a.ask(address, VERB, {"remove": "air"}, expected="b") == "done"
    with pytest.raises(RequestError, match="expected the answer of b to this request, got another"):
        await a.ask(address, VERB, {"remove": "air"}, expected="b")
    server.close()
    await a.stop()
    await b.stop()


@in_loop
async def test_idle_connections_of_anybody_keep_no_member_out() -> None:
    a, b = await started("a"), await started("b")
    counting(b, [])
    introduce(a, b)
    async with contextlib.AsyncExitStack() as stack:
        for number in range(2 * MAX_WAITING):
            _, writer = await asyncio.open_connection(*b.membership.roster.own.address)
            stack.callback(writer.close)
            if number % 3 == 1:
                writer.write(struct.pack("<I", 1_000) + b"half of a frame")
            if number % 3 == 2:
                a.frames.write(writer, b"", hello_to(b.membership.roster.own.peer))
        await until(lambda: b.refused_connections == MAX_WAITING, "the listener to take them")
        assert await a.request("b", VERB, {"remove": "air"}) == "done"
        assert len(b.waiting) == MAX_WAITING - 1
        assert b.refused_connections == MAX_WAITING + 1
    await until(lambda: len(b.waiting) == 0, "the connections to be forgotten")
    assert b.sealer.drops == {"no request": 2 * MAX_WAITING}
    await a.stop()
    await b.stop()


@in_loop
async def test_connection_without_a_request_is_ended_soon() -> None:
    b = await started("b")
    b.first_s = 0.05
    assert await answered(b, b"\x01") == b""
    assert b.sealer.drops == {"no request": 1}
    await b.stop()


@in_loop
async def test_requests_of_one_member_leave_places_for_others() -> None:
    a, b, c = await started("a"), await started("b"), await started("c")
    calls: list[str] = []
    counting(b, calls)
    going_on = asyncio.Event()

    async def slow(sender: str, args: Mapping[str, Any]) -> Any:
        calls.append(sender)
        await going_on.wait()

    b.handlers["slow"] = slow
    introduce(a, b)
    introduce(c, b)
    many = MAX_OF_MEMBER
    asked = [asyncio.create_task(a.request("b", "slow", {})) for _ in range(many)]
    await until(lambda: len(calls) == many, "the requests to come")
    with pytest.raises(RequestError, match="the connection failed"):
        await a.request("b", VERB, {"remove": "air"})
    assert b.refused_connections == 1
    assert await c.request("b", VERB, {"remove": "air"}) == "done"
    going_on.set()
    await asyncio.gather(*asked)
    assert await a.request("b", VERB, {"remove": "air"}) == "done"
    for board in (a, b, c):
        await board.stop()


def foreign(draw: random.Random, record: bytes) -> bytes:
    """What one without the key may send."""
    match draw.randrange(6):
        case 0:
            return record
        case 1:
            return record[: draw.randrange(len(record))]
        case 2:
            changed = bytearray(record)
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
            return bytes(changed)
        case 3:
            return draw.randbytes(draw.randrange(3_000))
        case 4:
            return struct.pack("<I", draw.randrange(MAX_FRAME * 2)) + draw.randbytes(draw.randrange(3_000))
        case _:
            return struct.pack("<I", 1_000) + draw.randbytes(200_000)


@pytest.mark.parametrize("seed", [int(os.environ.get("EDGERT_FUZZ_SEED", "1"))])
@in_loop
async def test_foreign_connections_are_counted_never_answered_and_leave_nothing(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}, {CONNECTIONS} connections")
    draw = random.Random(seed)
    a, b = await started("a"), await started("b", folder=tmp_path)
    calls: list[str] = []
    counting(b, calls)
    introduce(a, b)
    async with recorder(b) as (address, record):
        await a.ask(address, VERB, {"remove": "air"}, expected="b")
    taken = sealed(a, hello_at(b.membership.roster.own.address))
    assert len(await answered(b, taken, GREETING_BYTES)) == GREETING_BYTES
    await until(lambda: len(b.waiting) == 0, "its end")
    b.first_s = 0.02
    records = bytes(record), taken + bytes(record)
    for _ in range(20):  # caches fill
        assert await answered(b, foreign(draw, draw.choice(records))) == b""
    dropped, held, stored = b.sealer.drops.total(), b.membership.table(), stamp(tmp_path / HELLO_FILE)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(CONNECTIONS):
            assert await answered(b, foreign(draw, draw.choice(records))) == b""
        await until(lambda: len(b.waiting) == 0, "the connections to be forgotten")
        gc.collect()
        size, peak = (traced - before for traced in tracemalloc.get_traced_memory())
    finally:
        tracemalloc.stop()
    print(dict(b.sealer.drops), f"{size} bytes more, {peak} at most")
    assert b.sealer.drops.total() == dropped + CONNECTIONS
    assert b.membership.table() == held
    assert stamp(tmp_path / HELLO_FILE) == stored != (0, 0, 0), "none of them wrote to the disk"
    assert calls == ["air at b for a"]
    assert size < 100_000
    assert peak < 2_000_000
    assert b.sealer.drops.keys() >= {"bad tag", "replay", "too large", "no request"}
    await a.stop()
    await b.stop()
