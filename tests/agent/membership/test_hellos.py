"""Hellos for an address, of boards that know no start of the receiver, and the memory of those that were taken."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from agent.membership.events import Sync
from agent.membership.files import HELLO_FILE, MAX_SENDERS, HelloMemory
from agent.membership.packets import GREETING_BYTES, hello_at, hello_to
from agent.network.frames import SYNC
from agent.network.refusing import REFUSED
from agent.network.transport import PING, RequestError
from tests.agent.membership.worlds import answered, introduce, recorder, sealed, started
from tests.waiting import in_loop, until


@in_loop
async def test_recorded_hello_for_a_seed_is_answered_at_no_other_address() -> None:
    """Each other board greeted it once."""
    a, b, c = await started("a"), await started("b"), await started("c")
    async with recorder(b) as (address, record):
        a.meet(address)
        await until(lambda: record, "the hello to come")
        await a.stop()
    hello = bytes(record[: 4 + int.from_bytes(record[:4], "little")])
    assert await answered(c, hello, GREETING_BYTES) == b""
    assert c.sealer.drops == {"bad tag": 1}
    await b.stop()
    await c.stop()


@pytest.mark.parametrize(
    ("bind", "seed"),
    [
        ("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "localhost"), ("127.0.0.1", "::ffff:127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"), ("0.0.0.0", "127.0.0.2"), ("::1", "::1"), ("::", "::1"),
    ],
)  # fmt: skip
def test_seed_is_met_at_each_of_its_addresses(bind: str, seed: str) -> None:
    @in_loop
    async def test() -> None:
        a, b = await started("a"), await started("b", at=(bind, 0))
        at = seed, b.membership.roster.own.address[1]
        a.meet(at)
        await until(lambda: a.membership.met, "the seed to answer")
        assert a.membership.met == {at: "b"}
        await a.stop()
        await b.stop()

    test()


@in_loop
async def test_seed_behind_a_port_mapping_is_met_at_the_address_that_it_advertises() -> None:
    a, b = await started("a"), await started("b")
    async with recorder(b) as (address, _):
        b.membership.move(address, 0.0)
        a.meet(address)
        await until(lambda: a.membership.met, "the seed to answer")
    await a.stop()
    await b.stop()


@in_loop
async def test_hello_for_an_address_is_taken_once_across_restarts(tmp_path: Path) -> None:
    a, b = await started("a"), await started("b", folder=tmp_path)
    at = b.membership.roster.own.address
    recorded = [sealed(a, hello_at(at)) for _ in range(3)]
    for hello in recorded[1], recorded[0]:  # connections made at once come in any order
        assert len(await answered(b, hello, GREETING_BYTES)) == GREETING_BYTES
    await b.stop()
    b = await started("b", epoch=2, at=at, folder=tmp_path)
    for hello in recorded[:2]:
        assert await answered(b, hello, GREETING_BYTES) == b""
    assert b.sealer.drops == {"replay": 2}
    assert len(await answered(b, recorded[2], GREETING_BYTES)) == GREETING_BYTES
    await a.stop()
    await b.stop()


@in_loop
async def test_hello_for_an_address_is_not_answered_before_it_is_stored(tmp_path: Path) -> None:
    a, b = await started("a"), await started("b", folder=tmp_path)
    own = b.membership.roster.own.peer
    (tmp_path / HELLO_FILE).mkdir()  # no file takes its place
    assert await answered(b, sealed(a, hello_at(own.address)), GREETING_BYTES) == b""
    assert len(await answered(b, sealed(a, hello_to(own)), GREETING_BYTES)) == GREETING_BYTES, "needs no memory"
    (tmp_path / HELLO_FILE).rmdir()
    assert len(await answered(b, sealed(a, hello_at(own.address)), GREETING_BYTES)) == GREETING_BYTES
    await a.stop()
    await b.stop()


@in_loop
async def test_member_that_has_started_anew_is_asked_by_its_address(tmp_path: Path) -> None:
    """A board without seeds, which is nobody's seed, is found in no other way."""
    a, before = await started("a"), await started("b")
    introduce(a, before)
    await before.stop()
    b = await started("b", epoch=2, at=before.membership.roster.own.address, folder=tmp_path)
    known = a.membership.roster.get("b")
    assert known is not None
    assert await a.request("b", PING, {}) == 2
    assert b.sealer.drops == {"bad tag": 1}
    a.membership.merge_untrusted(await a.request("b", SYNC, {"table": a.membership.table()}), 0.0)
    assert known.version.epoch == 2
    held = HelloMemory(tmp_path).newest
    assert await a.request("b", PING, {}) == 2
    assert HelloMemory(tmp_path).newest == held != {}, "a hello for a start is not stored"
    await a.stop()
    await b.stop()


@in_loop
async def test_hellos_that_come_at_once_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    monkeypatch.setattr("agent.membership.files.write", lambda path, content: writes.append(content))
    memory = HelloMemory(tmp_path)
    await asyncio.gather(*(memory.keep(f"g{number}", 1, 1) for number in range(50)))
    assert len(writes) <= 2


@in_loop
async def test_memory_is_that_of_the_last_senders() -> None:
    memory = HelloMemory()
    for number in range(MAX_SENDERS + 1):
        await memory.keep(f"g{number}", 7, number)
        await memory.keep("g0", 7, number)
        await memory.keep("g0", 6, number + 9)
    assert len(memory.newest) == MAX_SENDERS
    assert memory.newest["g0"] == (7, MAX_SENDERS)
    assert "g1" not in memory.newest


@in_loop
async def test_damaged_memory_is_told_and_begun_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    memory, path, draw = HelloMemory(tmp_path), tmp_path / HELLO_FILE, random.Random(1)
    for number in range(3):
        await memory.keep(f"g{number}", 1_700_000_000, number)
    good = path.read_bytes()
    assert HelloMemory(tmp_path).newest == memory.newest
    assert caplog.messages == []
    for _ in range(200):
        damaged = bytearray(good)
        damaged[draw.randrange(len(good))] ^= 1 << draw.randrange(8)
        path.write_bytes(draw.choice([bytes(damaged), good[: draw.randrange(len(good))], draw.randbytes(40)]))
        caplog.clear()
        assert HelloMemory(tmp_path).newest == {}
        assert "agent.hellos: expected what this agent wrote" in caplog.text
    await HelloMemory(tmp_path).keep("g9", 1, 1)
    assert HelloMemory(tmp_path).newest == {"g9": (1, 1)}


@in_loop
async def test_seed_of_another_address_is_asked_no_more_while_its_member_is_there() -> None:
    """Each exchange with it has it write to its disk."""
    a, b = await started("a"), await started("b")
    seed = "localhost", b.membership.roster.own.address[1]
    a.membership.seeds = [seed]

    def syncs() -> list[Any]:
        a.membership._begin_sync(0.0)
        return a.membership.take_outputs()

    introduce(a, b)
    a.membership.take_outputs()
    assert Sync(seed) in syncs()
    assert isinstance(await a.ask(seed, SYNC, {"table": a.membership.table()}), bytes)
    assert syncs() == [Sync(b.membership.roster.own.address, "b")]
    a.membership.met[seed] = "c"
    assert Sync(seed) in syncs(), "its member is gone"
    await a.stop()
    await b.stop()


@in_loop
async def test_hello_of_an_older_start_is_answered_with_why_and_the_next_is_taken(tmp_path: Path) -> None:
    """A new card with a clock behind: the memory of hellos dropped its hellos, and nobody said anything."""
    before, b = await started("a", epoch=9_000), await started("b", folder=tmp_path)
    at = b.membership.roster.own.address
    before.meet(at)
    await until(lambda: before.membership.met, "the seed to answer")
    await before.stop()
    await b.stop()
    b, a = await started("b", epoch=2, at=at, folder=tmp_path), await started("a", epoch=1_000)
    a.meet(at)
    await until(lambda: a.membership.epoch == 9_001, "the epoch to be raised")
    a.sealer.epoch = a.membership.epoch  # as the agent does
    a.meet(at)
    await until(lambda: a.membership.met, "the seed to answer")
    assert b.sealer.drops == {"older start": 1}
    await a.stop()
    await b.stop()


@in_loop
async def test_recorded_refusal_is_not_taken_for_another_hello() -> None:
    """Else a man in the middle could raise the epoch of a board that is not refused."""
    receiver, new, old = await started("b"), await started("a", epoch=9), await started("a", epoch=1)
    own = receiver.membership.roster.own.peer
    await answered(receiver, sealed(new, hello_to(own)), GREETING_BYTES)
    refusal = await answered(receiver, sealed(old, hello_to(own)))
    assert refusal.startswith(REFUSED)

    async def replay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(refusal)

    server = await asyncio.start_server(replay, "127.0.0.1", 0)
    with pytest.raises(RequestError, match="bad tag"):
        await old.ask(server.sockets[0].getsockname()[:2], SYNC, {})
    assert old.membership.epoch == 1
    server.close()
    for transport in receiver, new, old:
        await transport.stop()
