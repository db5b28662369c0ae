"""Boards with agents that run flows together: real agents, real gateways, loopback."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from edgert.control.client import call
from tests.agent.rig import RealAgent
from tests.integration import truth
from tests.integration.boards import Boards
from tests.integration.rig import FLEET, Rig
from tests.waiting import wait_until

KEY = bytes(range(32))
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
STILL = "[moves]\nenabled = false\n"
"""The boards share a machine, and each would take the others for load of its own."""


class Fleet:
    """Three boards, each with a gateway and an agent."""

    def __init__(self, rig: Rig, settings: Mapping[str, str] = NO_SETTINGS) -> None:
        """`settings`: by board, what its agent's file has beside the usual; else no board hands operators over."""
        self.rig, self.boards, self.collector = rig, Boards(rig, 3), rig.collector()
        self.agents: dict[str, RealAgent] = {}
        for name, gateway in self.boards.gateways.items():
            seeds = [agent.port for agent in self.agents.values()]
            agent = RealAgent(
                rig.folder / "agents",
                name,
                seeds,
                [KEY],
                gateway=gateway.data / "control.sock",
                fleet=FLEET,
                extra=settings.get(name, STILL),
            )
            self.agents[name] = agent

    def start(self) -> None:
        self.collector.start()
        for gateway in self.boards.gateways.values():
            gateway.start_ready()
        for agent in self.agents.values():
            agent.start()
        for agent in self.agents.values():
            wait_until(lambda agent=agent: self.sees_all(agent), f"agent {agent.name} to see all boards")  # type: ignore[misc]

    def sees_all(self, agent: RealAgent) -> bool:
        members = agent.status().get("members", ())
        alive = {m["gateway"] for m in members if m["state"] == "alive" and m["board"].get("link", [0, 0])[1]}
        return alive == set(self.agents)

    def ask(self, name: str, verb: str, args: dict[str, Any]) -> Any:
        return call(self.agents[name].folder / "agent.sock", verb, args, 60.0)

    def where(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(name, "fleet.flows", {})["flows"].get("city-air", {})
        return found

    def close(self) -> None:
        for agent in self.agents.values():
            agent.kill()


def counts_of(packs: list[dict[str, Any]]) -> dict[tuple[float, str], int]:
    return {key: row["n"] for key, row in truth.expected(packs, 10.0).items()}
