"""Gateways that obey fencing numbers, and the coordinator that ends what the one before left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from agent.fleet.deploy import FleetDeploy
from agent.fleet.flows import FleetFlows
from agent.fleet.history import MoveHistory
from agent.fleet.mend import FleetMend
from agent.membership.members import State
from edgert.core.clock import VirtualClock
from edgert.core.errors import EdgertError
from tests.agent.migration.worlds import BOARDS, CHANGE, Gateways

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

    members = [SimpleNamespace(name=board, state=State.ALIVE, sections={}, present=True) for board in BOARDS]
    own = SimpleNamespace(client=SimpleNamespace(call=call))
    leases = SimpleNamespace(members=frozenset(BOARDS))
    flows = FleetFlows("a", cast(Any, members), cast(Any, own), request, cast(Any, leases), MoveHistory(VirtualClock()))
    return FleetMend(flows, FleetDeploy(cast(Any, members), flows))
