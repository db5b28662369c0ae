"""Figures of operators elsewhere, as the agent tells them to its board's page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.elsewhere import FleetOperators
from agent.fleet.flows import VERBS, FleetFlows
from agent.fleet.local_gateway import LocalGateway
from edgert.control.messages import VerbError

FIGURES = {"rows_in": 7, "rows_out": 5, "rate_in": 1.5, "queue_rows": 0, "queue_bytes": 0, "busy_s": 0.1}
SENT: dict[str, Any] = {
    "b": {"flows": {"air": {"window": FIGURES}}, "units": {}, "page": {"host": "0.0.0.0", "port": 8080}},
    "c": {"flows": {"air": {"central": {**FIGURES, "rows_in": "many"}}}, "units": {}, "page": None},
}
"""The answer of c is none that its version can give."""


def test_boards_that_share_a_flow_are_asked_and_one_that_makes_no_sense_is_left_out() -> None:
    asked: list[str] = []

    async def ask_all(boards: set[str], verb: str) -> dict[str, Any]:
        asked.extend(sorted(boards))
        assert verb in VERBS
        return {board: SENT[board] for board in boards}

    at = {"readings": ["a", -1], "window": ["b", -1], "central": ["c", 0], "alarm": ["gone", -1]}
    gateway = cast(Any, SimpleNamespace(parts={"air": {"assignment": at}, "own": {"state": "running"}}))
    flows = cast(FleetFlows, SimpleNamespace(name="a", ask_all=ask_all, alive=lambda: ["a", "b", "c", "d"]))
    operators = cast(Any, FleetOperators(gateway, flows).control["fleet.operators"])
    found: dict[str, Any] = asyncio.run(operators({}))
    assert asked == ["b", "c"]
    assert found == {"boards": {"b": SENT["b"]}}


class Listening:
    """A gateway that notes where its agent is."""

    path = "a socket"

    def __init__(self, refuses: bool) -> None:
        self.refuses, self.told = refuses, list[Any]()

    async def call(self, verb: str, args: Mapping[str, Any] | None = None, timeout_s: float | None = None) -> Any:
        if verb != "agent.here":
            return {"gateway": "a"}
        if self.refuses:
            raise VerbError("expected one of status, got agent.here")
        self.told.append(args)
        return {}

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("refuses", [False, True])
def test_the_gateway_learns_where_its_agent_is_and_an_older_one_need_not(refuses: bool) -> None:
    client = Listening(refuses)
    gateway = LocalGateway("", "a", client, own_socket="/elsewhere/agent.sock")
    asyncio.run(gateway.look())
    assert gateway.connected
    assert client.told == ([] if refuses else [{"socket": "/elsewhere/agent.sock"}])
