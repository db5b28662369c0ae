"""`fleet.flows`: a part that runs and does not do its work is told by board."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from agent.fleet.flows import FleetFlows
from agent.fleet.history import MoveHistory
from agent.membership.members import Section, State
from edgert.cli.fleet.flows import not_well
from edgert.core.clock import VirtualClock
from edgert.core.errors import EdgertError
from edgert.core.packing import pack
from gateway.status.conditions import Condition, Level

PART = {"state": "running", "plan": 1, "assignment": {"in": ["a", -1], "out": ["b", -1]}}


def status(level: Level, state: str) -> dict[str, Any]:
    return {
        "flows": [{"name": "air", "condition": Condition("flow", "air", level, state, f"{state}, it says").plain()}]
    }


def told(
    statuses: dict[str, dict[str, Any]], part: dict[str, Any] = PART, lacks: frozenset[str] = frozenset(),
    voters: str = "abc", **args: Any,
) -> dict[str, Any]:  # fmt: skip
    """What `fleet.flows` says of `air` on the boards a, b and c. Boards without a status do not answer; `lacks`: those
    that have lost their part."""

    async def call(verb: str, args: Any, _: float) -> Any:
        return {"air": part} if verb == "part.status" else statuses["a"]

    async def request(gateway: str, _: str, args: Any, __: float) -> Any:
        if gateway not in statuses:
            raise EdgertError("it has died")
        if args["verb"] != "part.status":
            return statuses[gateway]
        return {"air": part} if gateway in {name for name, _ in part["assignment"].values()} - lacks else {}

    members = [SimpleNamespace(name=name, state=State.ALIVE, sections={}, present=name in voters) for name in "abc"]
    own = SimpleNamespace(client=SimpleNamespace(call=call))
    leases = cast(Any, SimpleNamespace(members=frozenset(voters)))
    flows = FleetFlows("a", cast(Any, members), cast(Any, own), request, leases, MoveHistory(VirtualClock()))
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


def test_parts_that_are_well_say_nothing() -> None:
    found = told({"a": status("good", "running"), "b": status("idle", "no input yet")}, conditions=True)
    assert found["flows"]["air"]["boards"] == {"a": "running", "b": "running"}
    assert not_well(found["flows"]) == []


def test_a_board_of_the_newest_plan_without_a_part_and_one_that_does_not_answer_are_told() -> None:
    """The flow was said to run."""
    part = {**PART, "assignment": {"in": ["a", -1], "window": ["b", -1], "out": ["c", -1]}}
    found = told({"a": status("good", "running"), "b": {}}, part, frozenset("b"), conditions=True)
    assert found["flows"]["air"]["boards"] == {"a": "running", "b": "has no part", "c": "does not answer"}
    assert not_well(found["flows"]) == ["! b: flow air: has no part", "! c: flow air: does not answer"]


def test_a_board_that_was_forgotten_is_told_with_what_to_do() -> None:
    """It was said not to answer, as one that may come back."""
    found = told({"a": status("good", "running")}, voters="a")
    assert found["flows"]["air"]["boards"] == {"a": "running", "b": "is not in this fleet"}
    what = "where it is gone for good: edgert fleet remove air, then deploy the flow again"
    assert not_well(found["flows"]) == [f"! b: flow air: is not in this fleet; {what}"]


def test_a_board_whose_gateway_is_down_coordinates_no_flow() -> None:
    """Requests for its flows went to it, and none could be carried out."""
    down = Section(1, 1, pack({"flows": {}, "gateway": False}))
    boards = [SimpleNamespace(name=name, state=State.ALIVE, sections=dict[str, Section]()) for name in "abc"]
    nothing: Any = None
    leases: Any = SimpleNamespace(members="abc")
    flows = FleetFlows("a", cast(Any, boards), nothing, nothing, leases, MoveHistory(VirtualClock()))
    first = flows.coordinator_of("air")
    for board in boards:
        if board.name == first:
            board.sections["flows"] = down
    assert flows.coordinator_of("air") in set("abc") - {first}
    for board in boards:
        board.sections["flows"] = down
    assert flows.coordinator_of("air") == first
