"""A gateway in a control group with the memory that its unit gives it on a board of 512 MB: the kernel kills no process
of it. Each test prints the peaks: `make test ARGS="-s tests/lab/test_memory_of_unit.py"`."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from edgert.core.toml import to_toml
from tests.integration.rig import FLEET, Gateway, Rig
from tests.lab.cgroups import Group

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.root]

LIMIT_MB: Final = 256
"""`MemoryMax` of the unit."""
HIGH_MB: Final = 204
"""`MemoryHigh` of the unit, which the gateway plans with. A control group of version 1 has no such limit."""
SINKS: Final = 499
MESSAGES: Final = 300
FLOWS: Final = 200
READERS: Final = 500
ROUNDS: Final = 3


@pytest.fixture
def group(rig: Rig) -> Iterator[Group]:
    try:
        made = Group("gateway", 0, LIMIT_MB)
    except OSError as error:
        pytest.skip(f"this process may make no control groups: {error}")
    yield made
    rig.close()
    made.close()


def started(rig: Rig, group: Group) -> Gateway:
    gateway = rig.gateway(pool={"memory_bytes": HIGH_MB << 20}, outbox={"quota_bytes": 50_000_000})
    gateway.arguments = group.command(gateway.arguments)
    gateway.start_ready()
    return gateway


def check(gateway: Gateway, group: Group) -> None:
    """The gateway lives, and none of its processes was killed."""
    assert gateway.process is not None
    assert gateway.running
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    peak_mb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) >> 10
    print(
        f"peak of the gateway: {peak_mb} MB, of its group with files: {group.peak_mb():.0f} MB; kills: {group.kills()}"
    )
    assert group.kills() == 0


def test_499_publish_sinks_have_no_process_killed(rig: Rig, group: Group) -> None:
    sinks = {f"p{n}": {"type": "publish", "input": "in", "topic": f"out/{n}/{{source}}"} for n in range(SINKS)}
    source = {"type": "mqtt_source", "topic": "in/{source}", "codec": "json"}
    gateway = started(rig, group)
    assert rig.deploy(gateway, {"name": "wide", "operators": {"in": source, **sinks}})["accepted"]
    rig.publish((f"in/d{number}", b'{"v": 1.0}') for number in range(MESSAGES))
    gateway.wait(lambda s: s["ingest"]["messages"] >= MESSAGES, "the messages")
    gateway.settle()
    check(gateway, group)


def test_500_readers_of_200_flows_have_no_process_killed(rig: Rig, group: Group) -> None:
    gateway = started(rig, group)
    documents: list[dict[str, Any]] = [
        {
            "name": f"f{number}",
            "operators": {
                "in": {"type": "mqtt_source", "topic": f"in/{number}", "codec": "json"},
                "hot": {"type": "filter", "input": "in", "where": "v > 1"},
                "out": {"type": "publish", "input": "hot", "topic": f"out/{number}"},
            },
        }
        for number in range(FLOWS)
    ]
    topics = (f"edgert/v1/{FLEET}/{gateway.name}/flows/{document['name']}" for document in documents)
    rig.publish(zip(topics, (to_toml(document).encode() for document in documents), strict=True), retain=True)
    gateway.wait(lambda s: len(s["flows"]) == FLOWS, "all flows")

    async def read(path: str) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
        except OSError:  # more connections than are served
            return False
        return b" 200 " in answer[:20]

    async def readers() -> int:
        paths = ("/metrics", "/healthz", "/api/status")
        return sum([sum(await asyncio.gather(*map(read, paths * (READERS // 3)))) for _ in range(ROUNDS)])

    print(f"{asyncio.run(readers())} answers of {ROUNDS * READERS // 3 * 3}")
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.port}/healthz", timeout=60) as answer:
        assert answer.status == 200
    check(gateway, group)
