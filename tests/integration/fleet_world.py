"""Boards with agents that run flows together: real agents, real gateways, loopback."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from edgert.cli.main import main
from edgert.control.client import call
from edgert.control.messages import ControlError
from tests.agent.rig import RealAgent
from tests.integration import truth
from tests.integration.boards import Boards
from tests.integration.rig import FLEET, Rig
from tests.waiting import DEADLINE_S, wait_until

KEY = bytes(range(32))
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
STILL = "[moves]\nenabled = false\n"
"""The boards share a machine, and each would take the others for load of its own."""
MISSED = re.compile("again|answer|reach")
"""In refusals that a board causes which stood still for seconds, and is a suspect for the others."""


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


def until_done(do: Callable[[], Any], holds: Callable[[Any], object] = lambda _: True) -> Any:
    """The result of what is asked for again, as a user would, while a board is missed or the result does not hold."""
    end = time.monotonic() + DEADLINE_S
    while True:
        try:
            found: Any = do()
            if holds(found):
                return found
        except ControlError as error:
            if not MISSED.search(str(error)):
                raise
            found = error
        assert time.monotonic() < end, f"asked for {DEADLINE_S:g} s, last: {found}"
        time.sleep(0.5)


def told(capsys: pytest.CaptureFixture[str], *command: str, holds: Callable[[str], object] = lambda _: True) -> str:
    """Returns the output of a command of `edgert`, which is run again as `until_done` says."""

    def once() -> str:
        capsys.readouterr()
        failed, said = main(list(command)), capsys.readouterr()
        if failed:
            raise ControlError(said.err)
        return said.out

    said: str = until_done(once, holds)
    return said


def counts_of(packs: list[dict[str, Any]]) -> dict[tuple[float, str], int]:
    return {key: row["n"] for key, row in truth.expected(packs, 10.0).items()}
