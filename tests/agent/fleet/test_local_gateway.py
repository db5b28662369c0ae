"""The agent's side of its gateway's control socket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from agent.fleet.flows import FleetFlows
from agent.fleet.history import MoveHistory
from agent.fleet.local_gateway import LocalGateway
from agent.membership.members import State
from agent.placement.rendezvous import coordinator
from edgert.control.messages import ControlError
from edgert.core.clock import VirtualClock
from edgert.core.packing import pack
from tests.agent.migration.worlds import run_virtual

ANSWERS: Mapping[str, Any] = {
    "figures": {"gateway": "a", "flows": {"runs": {"version": 3, "plan": 2}}, "threads": []},
    "status": {"links": None},
    "part.status": {"runs": {"state": "running"}, "waits": {"state": "prepared"}},
}


class Client:
    """Answers as a gateway does."""

    path = "a socket"

    async def call(self, verb: str, args: Mapping[str, Any] | None = None, timeout_s: float | None = None) -> Any:
        return ANSWERS[verb]

    async def close(self) -> None:
        pass


def told() -> dict[str, Any]:
    gateway = LocalGateway("", "a", Client())
    asyncio.run(gateway.look())
    return gateway.flows()


def test_a_flow_that_is_only_prepared_is_told_too() -> None:
    """Its coordinator may have died: then another one learns of it so."""
    assert told() == {"flows": {"runs": [3, 2]}, "slots": 0, "prepared": ["waits"]}


class Absent(Client):
    """Answers from its fourth request on."""

    asked = 0

    async def call(self, verb: str, args: Mapping[str, Any] | None = None, timeout_s: float | None = None) -> Any:
        self.asked += 1
        if self.asked < 4:
            raise ControlError("there is no such socket")
        return ANSWERS[verb]


def test_a_gateway_that_begins_after_its_agent_is_seen_at_once() -> None:
    """The others were told some seconds later where its links are, and refused it operators until then."""

    async def times() -> list[float]:
        gateway, now, found = LocalGateway("", "a", Absent()), asyncio.get_running_loop().time, list[float]()
        for _ in range(2):
            await gateway.pause(5.0)
            assert gateway.connected
            found.append(now())
        return found

    assert run_virtual(times()) == [2.0, 7.0]


def test_a_gateway_whose_agent_said_that_it_is_away_is_asked_all_the_same() -> None:
    """It may be there again: a deployment was refused for some moments after the start."""
    away = SimpleNamespace(epoch=1, version=1, payload=pack({"gateway": False}))
    members = [SimpleNamespace(name="b", state=State.ALIVE, sections={"flows": away})]

    async def request(board: str, verb: str, args: Mapping[str, Any], timeout_s: float) -> Any:
        assert timeout_s <= 1.0
        return {"air": {"plan": 1}}

    leases = cast(Any, SimpleNamespace(members=["b"]))
    history = MoveHistory(VirtualClock())
    flows = FleetFlows("a", cast(Any, members), LocalGateway("", "a", Client()), request, leases, history)
    assert asyncio.run(flows.parts()) == {"b": {"air": {"plan": 1}}}


def test_a_coordinator_asks_the_boards_that_tell_of_its_flows() -> None:
    names = ["a", "b", "c"]
    section = SimpleNamespace(epoch=1, version=1, payload=pack(told()))
    members = [
        SimpleNamespace(name=n, state=State.ALIVE, sections={"flows": section} if n == "b" else {}) for n in names
    ]

    def flows(of: str) -> FleetFlows:
        async def request(*_: Any) -> Any:
            raise AssertionError("nobody is asked yet")

        history = MoveHistory(VirtualClock())
        leases = cast(Any, SimpleNamespace(members=names))
        return FleetFlows(of, cast(Any, members), cast(Any, None), request, leases, history)

    for flow in ("runs", "waits"):
        assert flows(coordinator(flow, names)).concerned()
        here = flows(coordinator(flow, names))
        assert here.concerned()
        assert here.tellers() == ["b"]
    (other, *_) = [name for name in names if name not in {coordinator(flow, names) for flow in ("runs", "waits")}]
    there = flows(other)
    assert not there.concerned()
    assert there.tellers() == []
