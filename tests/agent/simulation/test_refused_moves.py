"""A move that is refused, or undone, leaves the rules of the flow's placement as they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agent.simulation.fleet import VirtualFleet
from edgert.core.errors import EdgertError
from tests.agent.simulation.worlds import FLOW, ask, tell

WINDOWS = ("minute#1", "minute#2")


async def pins(fleet: VirtualFleet) -> dict[str, str]:
    """As people are told them; the same on all boards with a part."""
    parts = await fleet.agents["d"].flows.parts("air")
    told = [part["rules"].get("pins", {}) for part in parts.values()]
    assert all(one == told[0] for one in told)
    return dict(told[0])


def test_a_move_to_a_board_that_is_none_is_refused_and_pins_nothing() -> None:
    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW)
        refused = "minute#1, and with it by_source: expected a gateway that answers, one of a, b, c, d, got 'x'"
        with pytest.raises(EdgertError, match=refused):
            await ask(fleet, "a", "move", flow="air", moves=dict.fromkeys(WINDOWS, "x"))
        with pytest.raises(EdgertError, match=r"expected moves: \{operator: gateway\}"):
            await ask(fleet, "a", "move", flow="air", moves={"central": ["b"]})
        assert await pins(fleet) == {}

    tell(story)


def test_a_deployment_with_a_pin_to_a_board_that_is_none_is_refused_also_where_no_copy_obeys_it() -> None:
    async def story(fleet: VirtualFleet) -> None:
        with pytest.raises(EdgertError, match=r"minute: expected a gateway that answers, .*, got 'x'"):
            await ask(fleet, "a", "deploy", document=FLOW, pins={"minute": "x", **dict.fromkeys(WINDOWS, "b")})

    tell(story)


@pytest.mark.parametrize("verb", ["move", "deploy"])
def test_a_change_that_is_undone_leaves_the_pins_of_before(verb: str) -> None:
    async def refuse(_: Mapping[str, Any]) -> Any:
        raise EdgertError("no room")

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW, pins={"central": "c"})
        told: dict[str, dict[str, Any]] = {
            "move": {"flow": "air", "moves": dict.fromkeys(WINDOWS, "b")},
            "deploy": {"document": FLOW, "pins": {"minute": "b"}},
        }
        asked = told[verb]
        verbs = fleet.agents["b"].virtual_gateway._verbs
        prepare, verbs["part.prepare"] = verbs["part.prepare"], refuse
        with pytest.raises(EdgertError, match=r"flow air stays where it is: .*no room"):
            await ask(fleet, "a", verb, **asked)
        assert await pins(fleet) == {"central": "c"}
        verbs["part.prepare"] = prepare
        await ask(fleet, "a", verb, **asked)
        assert (await pins(fleet)).items() >= (asked.get("moves") or asked["pins"]).items()

    tell(story)


def test_all_copies_of_an_operator_move_by_its_name() -> None:
    """The name was refused, as no copy has it."""

    async def story(fleet: VirtualFleet) -> None:
        await ask(fleet, "a", "deploy", document=FLOW)
        with pytest.raises(EdgertError, match=r"expected an operator of flow air, one of .*, got 'nosuch'"):
            await ask(fleet, "a", "move", flow="air", moves={"nosuch": "b"})
        found = await ask(fleet, "a", "move", flow="air", moves={"minute": "b"})
        assert [found["assignment"][window] for window in WINDOWS] == ["b", "b"]
        assert await pins(fleet) == dict.fromkeys(WINDOWS, "b")

    tell(story)
