"""A member that sends the largest messages without end costs another board's agent no more than its unit allows."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import Any

import pytest

from agent.membership.packets import MAX_FRAME
from agent.network.transport import MAX_OF_MEMBER, RequestError, Transport
from tests.agent.membership.worlds import started
from tests.agent.rig import RealAgent
from tests.lab.cgroups import Group
from tests.waiting import DEADLINE_S, in_loop, until

UNIT_MB = int(re.findall(r"MemoryMax=(\d+)M", Path("systemd/edgert-agent.service").read_text())[0])
ROUNDS = 4
LARGEST = MAX_FRAME - 4_096
HOSTILE: tuple[Any, ...] = (
    {"verb": "status", "args": bytes(LARGEST)},
    {"verb": "flows", "args": [[None] * 900_000] * 16},
    {"verb": "flows", "args": [0.5] * 399_000},
    {"verb": "flows", "args": [f"{number:04x}" for number in range(399_000)]},
    {"verb": "flows", "args": [{}] * 99_000 + [b""] * 300_000},
)


@pytest.mark.integration
@in_loop
async def test_agent_with_the_memory_of_its_unit_outlives_the_largest_messages(tmp_path: Path) -> None:
    agent = RealAgent(tmp_path, "board-1", [], [bytes(32)], fleet="f")
    group = None
    with contextlib.suppress(OSError):  # where the machine lets this test make no group, its peak is read alone
        group = Group("agent", 0, UNIT_MB)
    agent.start(group.command if group else list)
    try:
        await until(agent.status, "the agent to answer")
        liar, honest = await started("liar"), await started("honest")
        address = ("127.0.0.1", agent.port)

        async def one(arguments: Any) -> None:
            with contextlib.suppress(RequestError):
                await liar.ask(address, "fleet.gateway", arguments, DEADLINE_S, expected="board-1")

        async def asked(by: Transport) -> Any:
            async with asyncio.timeout(DEADLINE_S):
                while agent.process and agent.process.poll() is None:
                    with contextlib.suppress(RequestError):  # a busy machine takes longer than a greeting may
                        return await by.ask(address, "membership.ping", {}, DEADLINE_S, expected="board-1")
            return None

        for _ in range(ROUNDS):
            requests = [one(HOSTILE[number % len(HOSTILE)]) for number in range(MAX_OF_MEMBER)]
            flood = asyncio.gather(*requests)
            assert type(await asked(honest)) is int, "an honest member is answered meanwhile"
            await flood
        peak_mb = agent.peak_mb()
        killed = group.kills() if group else 0
        print(f"peak of the agent: {peak_mb:.0f} MB of {UNIT_MB}; in a group: {group is not None}; kills: {killed}")
        assert not killed
        assert peak_mb < UNIT_MB
        await liar.stop()
        await honest.stop()
    finally:
        agent.kill()
        if group:
            group.close()
