"""`fleet.flows`: a part that runs and does not do its work is told by board."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from agent.fleet.flows import FleetFlows
from agent.fleet.history import MoveHistory
from agent.membership.members import State
from edgert.cli.fleet.flows import not_well
from edgert.core.clock import VirtualClock
from edgert.core.errors import EdgertError
from gateway.status.conditions import Condition, Level

PART = {"state": "running", "plan": 1, "assignment": {"in": ["a", -1], "out": ["b", -1]}}


def status(level: Level, state: str) -> dict[str, Any]:
    return {
        "flows": [{"name": "air", "condition": Condition("flow", "air", level, state, f"{state}, it says").plain()}]
    }


def told(statuses: dict[str, dict[str, Any]], **args: Any) -> dict[str, Any]:
    """What `fleet.flows` says of `air` on the boards a, b and c."""

    async def call(verb: str, args: Any, _: float) -> Any:
        return {"air": PART} if verb == "part.status" else statuses["a"]

    async def request(gateway: str, _: str, args: Any, __: float) -> Any:
        if gateway not in statuses:
            raise EdgertError("it has died")
        return {"air": PART} if args["verb"] == "part.status" else statuses[gateway]

    members = [SimpleNamespace(name=name, state=State.ALIVE, sections={}) for name in "abc"]
    own = SimpleNamespace(client=SimpleNamespace(call=call))
    flows = FleetFlows("a", cast(Any, members), cast(Any, own), request, cast(Any, None), MoveHistory(VirtualClock()))
    found: dict[str, Any] = asyncio.run(cast(Any, flows.control["fleet.flows"](args)))
    return found


def test_a_part_that_is_not_well_is_told_with_its_board_if_conditions_are_asked_for() -> None:
    statuses = {"a": status("warning", "no input"), "b": status("bad", "not landing"), "c": {}}
    found = told(statuses, conditions=True)
    assert set(found["flows"]["air"]["boards"].values()) == {"running"}
    assert not_well(found["flows"]) == [
        "! b: flow air: not landing, it says",
        "? a: flow air: no input, it says",
    ]
    assert "conditions" not in told(statuses)["flows"]["air"]


def test_parts_that_are_well_and_boards_that_do_not_answer_say_nothing() -> None:
    found = told({"a": status("good", "running"), "b": status("idle", "no input yet")}, conditions=True)
    assert found["flows"]["air"]["boards"] == {"a": "running", "b": "running"}
    assert not_well(found["flows"]) == []
