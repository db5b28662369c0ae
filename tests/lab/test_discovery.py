"""Real agents in a namespace, on an interface with multicast, find each other without seeds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.rig import RealAgent
from tests.lab.namespaces import Namespace
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.root, pytest.mark.usefixtures("may_make_namespaces")]
ADDRESS, HARDWARE = "10.77.0.1", b"\x02\0\0\0\0\1"
KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Namespace]:
    monkeypatch.setenv("EDGERT_AGENT_DISCOVERY", "mdns")
    monkeypatch.setenv("EDGERT_AGENT_BIND", ADDRESS)
    namespace = Namespace()
    tap = namespace.add_tap(ADDRESS, HARDWARE)
    yield namespace
    os.close(tap)
    namespace.close()


def test_agents_of_one_fleet_find_each_other_by_mdns(tmp_path: Path, network: Namespace) -> None:
    """A third, of another fleet, announces itself beside them."""
    fleet = [RealAgent(tmp_path, f"board-{n}", [], [KEY]) for n in (1, 2)]
    stranger = RealAgent(tmp_path, "stranger", [], [OTHER_KEY], fleet="other")
    agents = [*fleet, stranger]
    try:
        with network.inside():
            for agent in agents:
                agent.start()
        for agent in fleet:
            wait_until(
                lambda a=agent: a.states() == {"board-1": "alive", "board-2": "alive"},  # type: ignore[misc]
                f"{agent.name} to see both",
            )
        for agent, other in zip(fleet, reversed(fleet), strict=True):
            found = {"announced": True, "error": "", "found": [[ADDRESS, other.port]]}
            wait_until(
                lambda a=agent, f=found: a.status().get("discovery") == f,  # type: ignore[misc]
                f"{agent.name} to have found {other.name}",
            )
        seen: list[dict[str, Any]] = []

        def announced() -> bool:
            seen[:] = [stranger.status()]
            return bool(seen[0].get("discovery", {}).get("announced"))

        wait_until(announced, "the stranger to be announced")
        assert [member["gateway"] for member in seen[0]["members"]] == ["stranger"]
        assert seen[0]["discovery"]["found"] == []
    finally:
        for agent in agents:
            agent.kill()
            print(agent.name, agent.log())


def test_mdns_that_cannot_work_stops_no_agent_and_is_said(
    tmp_path: Path, network: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGERT_AGENT_BIND", "127.0.0.1")
    agent = RealAgent(tmp_path, "board-1", [], [KEY])
    try:
        with network.inside():
            agent.start()
        reason = "127.0.0.1 is no address of a local network"
        wait_until(lambda: reason in (agent.status().get("discovery") or {}).get("error", ""), "the reason")
        wait_until(lambda: 'agent.discovery = "mdns" does not work' in agent.log(), "the log")
    finally:
        agent.kill()
