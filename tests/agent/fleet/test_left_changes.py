"""A change of plan that its coordinator left is ended by another one: only when all gateways answer, and obey it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from agent.fleet.deploy import FleetDeploy
from agent.fleet.flows import FleetFlows
from agent.fleet.mend import FleetMend
from agent.membership.members import State
from edgert.core.errors import EdgertError
from tests.agent.migration.worlds import BOARDS, CHANGE, Gateways, whole

FIRST = 7
"""Fencing number of the coordinator that left."""


class Fenced(Gateways):
    """Gateways with fencing numbers; those that are `down` do not answer, though their agents are alive."""

    def __init__(self) -> None:
        super().__init__({}, CHANGE)
        self.fences = dict.fromkeys(BOARDS, FIRST)
        self.down: set[str] = set()
        self.before: dict[str, Callable[[], None]] = {}
        """Called before the first request with this verb."""

    async def ask(self, gateway: str, verb: str, args: Mapping[str, Any]) -> Any:
        if (call := self.before.pop(verb, None)) is not None:
            call()
        if gateway in self.down:
            raise EdgertError(f"{gateway} does not answer")
        if verb == "part.status":
            part = self.parts()[gateway]
            return {"f": {**part, "fence": self.fences[gateway]}} if part else {}
        fence = args.get("fence", self.fences[gateway])
        if fence < self.fences[gateway]:
            raise EdgertError("it obeys another coordinator")
        self.fences[gateway] = fence
        return {} if verb == "part.rules" else await super().ask(gateway, verb, args)

    def first(self, gateway: str, verb: str) -> None:
        """The coordinator that left does something."""
        if self.fences[gateway] == FIRST:
            self._do(gateway, verb, {**CHANGE.part, "imports": ()})


def next_coordinator(gateways: Fenced) -> FleetMend:
    async def request(gateway: str, _: str, args: Mapping[str, Any], __: float) -> Any:
        return await gateways.ask(gateway, args["verb"], args["args"])

    async def call(verb: str, args: Mapping[str, Any], _: float) -> Any:
        return await gateways.ask("a", verb, args)

    members = [SimpleNamespace(name=board, state=State.ALIVE) for board in BOARDS]
    own = SimpleNamespace(client=SimpleNamespace(call=call))
    leases = SimpleNamespace(members=frozenset(BOARDS))
    flows = FleetFlows("a", cast(Any, members), cast(Any, own), request, cast(Any, leases))
    return FleetMend(flows, FleetDeploy(cast(Any, members), flows))


def prepared(gateways: Fenced, *boards: str) -> None:
    for board in BOARDS:
        gateways.first(board, "part.stop")
    for board in boards:
        gateways.first(board, "part.prepare")


def test_a_gateway_that_does_not_answer_may_have_committed() -> None:
    gateways = Fenced()
    prepared(gateways, *BOARDS)
    gateways.first("c", "part.commit")
    gateways.down = {"c"}
    flows = next_coordinator(gateways)
    asyncio.run(flows.end_change("f"))
    assert (gateways.state["a"], gateways.state["b"]) == ("prepared", "prepared")
    gateways.down = set()
    asyncio.run(flows.end_change("f"))
    assert whole(gateways) == CHANGE.plan


def test_a_coordinator_that_is_held_for_dead_can_commit_nothing_while_another_one_aborts() -> None:
    for verb in ("part.abort", "part.rules"):
        gateways = Fenced()
        prepared(gateways, "a", "b")

        def goes_on(gateways: Fenced = gateways) -> None:
            gateways.first("c", "part.prepare")
            gateways.first("c", "part.commit")

        gateways.before[verb] = goes_on
        asyncio.run(next_coordinator(gateways).end_change("f"))
        assert not gateways.mixed
        assert whole(gateways) == (CHANGE.plan if verb == "part.rules" else 1)
