"""The control socket over real Unix sockets: many clients, bad ones among them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.fleet.local_gateway import LocalGateway
from edgert.control.client import ControlClient, call
from edgert.control.messages import (
    MAX_REQUEST_BYTES,
    MAX_STATE_BYTES,
    ControlError,
    VerbError,
    pack_request,
)
from edgert.control.server import MAX_CONNECTIONS, MAX_PIPELINED, ControlServer
from tests.control.control_rig import Gate, _began, _has, echo, raw, said, serving
from tests.waiting import DEADLINE_S, in_loop, until


@in_loop
async def test_a_blocking_client_gets_the_result_of_a_verb(tmp_path: Path) -> None:
    async with serving(tmp_path / "c.sock"):
        args = {"flow": "air", "weights": {"minute": 2.0}, "blob": b"\0\1"}
        assert await asyncio.to_thread(call, tmp_path / "c.sock", "echo", args) == args


@in_loop
async def test_an_agent_can_send_its_gateway_state_that_is_longer_than_other_requests(tmp_path: Path) -> None:
    """As long as the gateway takes it: the agent refused 4 MiB itself, and the operator could not be moved."""
    path, args = tmp_path / "c.sock", {"state": bytes(MAX_REQUEST_BYTES)}
    server = ControlServer(path, {"echo": echo}, max_request_bytes=MAX_STATE_BYTES)
    await server.start()
    agent, other = LocalGateway(str(path), "g1").client, ControlClient(path)
    try:
        assert await agent.call("echo", args) == args
        with pytest.raises(ControlError, match=r"the request echo has 41943.. bytes, expected at most 4194304"):
            await other.call("echo", args)
    finally:
        await agent.close()
        await server.stop()


@in_loop
async def test_errors_of_handlers_are_the_answer_and_cost_no_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path / "c.sock"):
        client = ControlClient(tmp_path / "c.sock")
        for verb, text in (
            ("refuse", "^flow: expected one that runs, got 'x'$"),
            ("fault", r"^an unforeseen fault: KeyError\('our own'\)$"),
            ("odd", "the answer is not made of plain values"),
            ("none.such", "^verb: expected one of echo, fault, odd, refuse, got none.such$"),
        ):
            with pytest.raises(VerbError, match=text):
                await client.call(verb)
        assert await client.call("echo", {"a": 1}) == {"a": 1}
        await client.close()
    assert "the request fault could not be carried out" in caplog.text


@in_loop
async def test_requests_of_one_client_are_answered_in_any_order(tmp_path: Path) -> None:
    gate = Gate()
    async with serving(tmp_path / "c.sock", gate=gate) as server:
        client = ControlClient(tmp_path / "c.sock")
        slow = asyncio.create_task(client.call("gate"))
        await until(lambda: gate.began, "the slow request")
        assert await asyncio.gather(*(client.call("echo", {"n": n}) for n in range(100))) == [
            {"n": n} for n in range(100)
        ]
        gate.open.set()
        assert await slow == 1
        assert len(server.connections) == 1
        await client.close()


@in_loop
async def test_a_great_answer_comes_whole(tmp_path: Path) -> None:
    async def great(args: Mapping[str, Any]) -> Any:
        return [b"x" * 1000] * 5000

    async with serving(tmp_path / "c.sock", great=great):
        assert await asyncio.to_thread(call, tmp_path / "c.sock", "great") == [b"x" * 1000] * 5000


@in_loop
async def test_a_client_of_the_agent_comes_back_after_the_server_does(tmp_path: Path) -> None:
    client = ControlClient(tmp_path / "c.sock")
    with pytest.raises(ControlError, match=r"c\.sock: there is no such socket: is the program running"):
        await client.call("echo")
    gate = Gate()
    async with serving(tmp_path / "c.sock", gate=gate):
        waiting = asyncio.create_task(client.call("gate"))
        await until(lambda: gate.began, "the request")
    with pytest.raises(ControlError, match="the connection was closed at the other end"):
        await waiting
    async with serving(tmp_path / "c.sock"):
        assert await client.call("echo", {"a": 1}) == {"a": 1}
    await client.close()


@in_loop
async def test_an_answer_that_comes_too_late_is_not_taken_for_another(tmp_path: Path) -> None:
    gate = Gate()
    async with serving(tmp_path / "c.sock", gate=gate):
        client = ControlClient(tmp_path / "c.sock")
        with pytest.raises(ControlError, match=r"no answer to gate within 0\.05 s"):
            await client.call("gate", timeout_s=0.05)
        gate.open.set()
        assert await client.call("echo", {"a": 1}) == {"a": 1}
        await client.close()
        gate.open.clear()
        with pytest.raises(ControlError, match=r"no answer to gate within 0\.05 s"):
            await asyncio.to_thread(call, tmp_path / "c.sock", "gate", None, 0.05)


@pytest.mark.parametrize(
    ("rubbish", "error"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "expected a frame of 1 to 4194304 bytes, got one of 542393671"),
        (b"\0\0\0\0", "expected a frame of 1 to"),
        (b"\x03\0\0\0abc", "expected MessagePack"),
        (b"\x01\0\0\0\x05", "expected a request, a map, got 5"),
    ],
)
def test_rubbish_ends_its_connection_with_the_reason_and_no_other(tmp_path: Path, rubbish: bytes, error: str) -> None:
    @in_loop
    async def run() -> None:
        async with serving(tmp_path / "c.sock") as server:
            other = ControlClient(tmp_path / "c.sock")
            await other.call("echo")
            with raw(tmp_path / "c.sock") as bad:
                bad.sendall(rubbish)
                assert error in await asyncio.to_thread(said, bad)
            await until(lambda: len(server.connections) == 1, "the end of the bad connection")
            assert await other.call("echo", {"a": 1}) == {"a": 1}
            assert not [task for task in asyncio.all_tasks() if task.done() and task.exception()]
            await other.close()

    run()


@in_loop
async def test_random_bytes_of_many_clients_cost_a_good_one_nothing(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    async with serving(tmp_path / "c.sock") as server:
        good = ControlClient(tmp_path / "c.sock")
        for n in range(200):
            with raw(tmp_path / "c.sock") as bad, contextlib.suppress(OSError):
                bad.sendall(draw.randbytes(draw.randrange(1, 2000)))
                if draw.random() < 0.5:
                    bad.sendall(pack_request(1, "echo", {})[: draw.randrange(1, 20)])
            await asyncio.sleep(0)
            if not n % 10:
                assert await good.call("echo", {"n": n}) == {"n": n}
        assert await good.call("echo", {"n": -1}) == {"n": -1}
        await until(lambda: len(server.connections) == 1, "the end of the bad connections")
        await good.close()


@in_loop
async def test_a_client_that_stops_within_a_frame_is_given_up(tmp_path: Path) -> None:
    async with serving(tmp_path / "c.sock") as server:
        server.stall_s = 0.05
        with raw(tmp_path / "c.sock") as bad:
            bad.sendall(pack_request(1, "echo", {})[:-1])
            assert await asyncio.to_thread(said, bad) == "expected the rest of a frame within 0.05 s"


@in_loop
async def test_a_client_that_takes_no_answer_is_given_up(tmp_path: Path) -> None:
    async def great(args: Mapping[str, Any]) -> Any:
        return b"x" * 20_000_000

    async with serving(tmp_path / "c.sock", great=great) as server:
        server.stall_s = 0.05
        with raw(tmp_path / "c.sock") as bad:
            bad.sendall(pack_request(1, "great", {}))
            await until(lambda: server.connections, "the connection")
            await until(lambda: not server.connections, "the end of the connection")
        server.stall_s = DEADLINE_S
        assert await asyncio.to_thread(call, tmp_path / "c.sock", "echo", {"a": 1}) == {"a": 1}


@in_loop
async def test_for_a_connection_too_many_the_longest_idle_one_goes(tmp_path: Path) -> None:
    gate = Gate()
    async with serving(tmp_path / "c.sock", gate=gate) as server:
        with contextlib.ExitStack() as stack:
            busy = ControlClient(tmp_path / "c.sock")
            waiting = asyncio.create_task(busy.call("gate"))
            await until(lambda: gate.began, "the request of the first client")
            for n in range(2 * MAX_CONNECTIONS):
                hanging = stack.enter_context(raw(tmp_path / "c.sock"))
                hanging.sendall(b"\0")
                there = min(n + 2, MAX_CONNECTIONS)
                await until(functools.partial(_has, server, there), "a connection")
            assert await asyncio.to_thread(call, tmp_path / "c.sock", "echo", {"a": 1}) == {"a": 1}
            gate.open.set()
            assert await waiting == 1, "one with a request under way stays"
            await busy.close()


@in_loop
async def test_where_all_connections_are_busy_one_more_is_told_so(tmp_path: Path) -> None:
    gate = Gate()
    async with serving(tmp_path / "c.sock", gate=gate):
        clients = [ControlClient(tmp_path / "c.sock") for _ in range(MAX_CONNECTIONS)]
        waiting = [asyncio.create_task(client.call("gate")) for client in clients]
        await until(lambda: gate.began == MAX_CONNECTIONS, "all requests")
        with pytest.raises(ControlError, match=f"expected at most {MAX_CONNECTIONS} connections; all are in use"):
            await asyncio.to_thread(call, tmp_path / "c.sock", "echo")
        gate.open.set()
        await asyncio.gather(*waiting)
        for client in clients:
            await client.close()


@in_loop
async def test_one_client_has_only_so_many_requests_under_way(tmp_path: Path) -> None:
    gate = Gate()
    async with serving(tmp_path / "c.sock", gate=gate):
        greedy, other = ControlClient(tmp_path / "c.sock"), ControlClient(tmp_path / "c.sock")
        waiting = [asyncio.create_task(greedy.call("gate")) for _ in range(5 * MAX_PIPELINED)]
        await until(lambda: gate.began == MAX_PIPELINED, "its first requests")
        assert await other.call("echo", {"a": 1}) == {"a": 1}
        assert gate.began == MAX_PIPELINED
        gate.open.set()
        assert len(await asyncio.gather(*waiting)) == 5 * MAX_PIPELINED
        await greedy.close()
        await other.close()


@in_loop
async def test_requests_of_lost_connections_count_until_they_end(tmp_path: Path) -> None:
    gate = Gate()
    async with serving(tmp_path / "c.sock", gate=gate) as server:
        server.max_under_way = 2
        for n in (1, 2):
            with raw(tmp_path / "c.sock") as lost:
                lost.sendall(pack_request(1, "gate", {}))
                await until(functools.partial(_began, gate, n), "a request")
        await until(lambda: not server.connections, "the end of both connections")
        with pytest.raises(VerbError, match="2 requests are under way already; try again"):
            await asyncio.to_thread(call, tmp_path / "c.sock", "echo")
        gate.open.set()
        await until(lambda: not server._under_way, "the end of both requests")
        assert await asyncio.to_thread(call, tmp_path / "c.sock", "echo", {"a": 1}) == {"a": 1}
