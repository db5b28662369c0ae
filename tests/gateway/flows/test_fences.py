"""Coordinators of a flow that come to a gateway at once: what the one with the smaller number began is done first."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from edgert.core.errors import EdgertError
from edgert.core.settings.gateway import Pool
from gateway.control.commands import Commands
from gateway.flows.guests import Guests
from tests.gateway.flows.parts_here import AT, parts_of
from tests.gateway.whole_gateway import Gateway, document
from tests.waiting import in_loop, until

ASSIGNED = {operator: [at.gateway, at.slot] for operator, at in AT.items()}
DEPLOY = {"document": dict(document().document), "assignment": ASSIGNED}
REQUESTS: dict[str, dict[str, Any]] = {
    "part.deploy": {**DEPLOY, "plan": 5},
    "part.remove": {"flow": "f"},
    "part.stop": {"flow": "f"},
    "part.copy": {"flow": "f", "operators": []},
    "part.ahead": {**DEPLOY, "plan": 5, "copies": {}},
    "part.prepare": {**DEPLOY, "plan": 5, "imports": []},
    "part.commit": {"flow": "f", "plan": 5},
    "part.abort": {"flow": "f", "plan": 5},
    "part.rules": {"flow": "f", "rules": {}},
}
DOES = {"part.deploy": "deploy", "part.remove": "remove", "part.rules": "put_rules"}


@pytest.mark.parametrize("verb", REQUESTS)
@in_loop
async def test_a_later_coordinator_is_obeyed_after_what_an_earlier_one_began(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would read the parts, and what the earlier one began would come behind its back."""
    gateway = Gateway(tmp_path / "db")
    parts, _ = parts_of(gateway)
    commands = Commands(
        "g1", Pool(), gateway.flows, gateway.host, parts, Guests(parts), None, cast(Any, None), gateway.clock
    )
    verbs, began, may_end = commands.of_agent(), asyncio.Event(), asyncio.Event()
    order: list[str] = []

    async def slow(*args: Any, **more: Any) -> Any:
        began.set()
        await may_end.wait()
        order.append("done")

    does = DOES.get(verb, verb.removeprefix("part."))
    monkeypatch.setattr(gateway.flows if does in ("deploy", "remove") else parts, does, slow)
    earlier = asyncio.ensure_future(verbs[verb]({**REQUESTS[verb], "fence": 5}))
    await until(began.is_set, "the earlier coordinator's request to begin")

    async def obey() -> None:
        await verbs["part.fence"]({"flow": "f", "fence": 6})
        order.append("obeyed")

    later = asyncio.create_task(obey())
    await asyncio.sleep(0)
    await verbs["part.fence"]({"flow": "another", "fence": 1})  # waits for nothing
    assert order == []
    may_end.set()
    await asyncio.gather(earlier, later)
    assert order == ["done", "obeyed"]
    with pytest.raises(EdgertError, match="obeys a coordinator with fencing number 6, got 5"):
        await verbs[verb]({**REQUESTS[verb], "fence": 5})


@in_loop
async def test_what_waits_behind_a_later_coordinator_is_refused_when_its_turn_comes(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    parts, _ = parts_of(gateway)
    async with parts.obeying("f", 5):
        waiting = [asyncio.create_task(parts.obey("f", 9)), asyncio.create_task(_obeyed(parts, 7))]
        await asyncio.sleep(0)
        assert parts.status() == {}
    assert await waiting[0] == 9
    with pytest.raises(EdgertError, match="obeys a coordinator with fencing number 9, got 7"):
        await waiting[1]
    assert len(parts._locks) == 0, "nothing is kept of flows that nobody changes"


async def _obeyed(parts: Any, fence: int) -> None:
    async with parts.obeying("f", fence):
        pass
