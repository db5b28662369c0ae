"""The memory of a board about its drain, where moves fail and agents die."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.fleet.drain import FILE, FleetDrain
from edgert.core.errors import EdgertError

DOCUMENT = {"name": "air"}
OPERATORS = {
    "in": {"source": True, "type": "mqtt_source", "inputs": []},
    "window": {"source": False, "type": "tumbling_window", "inputs": ["in"]},
    "out": {"source": False, "type": "ship", "inputs": ["window"]},
}


class World:
    """One flow on the boards g1 and g2; the agent is that of g1."""

    def __init__(self) -> None:
        self.on = {"in": "g1", "window": "g1", "out": "g1"}
        self.error, self.makes = "", True
        """The coordinator: its answer, and whether it makes the move."""

    def drain(self, folder: Path) -> FleetDrain:
        own = SimpleNamespace(name="g1")
        roster = SimpleNamespace(own=own)
        client = SimpleNamespace(call=self.parts)
        gateway = SimpleNamespace(client=client, figures={})
        flows = SimpleNamespace(
            check=self.check, parts=self.part, running=self.part, control={"fleet.relieve": self.relieve}
        )
        return FleetDrain(
            folder, cast(Any, roster), cast(Any, gateway), cast(Any, flows), cast(Any, SimpleNamespace(rings={})),
            cast(Any, SimpleNamespace(drained=False)), cast(Any, None),
        )  # fmt: skip

    async def parts(self, verb: str) -> Any:
        return {"air": (await self.part("air"))["g1"]}

    async def part(self, flow: str) -> dict[str, Any]:
        assignment = {operator: [at, -1] for operator, at in self.on.items()}
        part = {"plan": 1, "state": "running", "document": DOCUMENT, "assignment": assignment}
        return {"g1": part} if self.on else {}

    async def check(self, document: Any) -> Any:
        return OPERATORS

    async def relieve(self, args: Mapping[str, Any]) -> Any:
        assert all(self.on[operator] == args["from"] for operator in args["moves"])
        if self.makes:
            self.on |= args["moves"]
        if self.error:
            raise EdgertError(self.error)
        return {"pause_s": 0.1}


@pytest.fixture(autouse=True)
def other_board(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.fleet.drain._freest", lambda *_: "g2")
    monkeypatch.setattr(FleetDrain, "_others", lambda _: [])
    monkeypatch.setattr(FleetDrain, "_labelled", lambda *_: {"g2"})


def ask(drain: FleetDrain, verb: str) -> Any:
    return asyncio.run(drain.serve("g1", {"verb": verb}))


def test_a_board_is_drained_across_a_restart_and_filled(tmp_path: Path) -> None:
    world = World()
    assert ask(world.drain(tmp_path), "drain")["stays"] == {}
    assert world.on == {"in": "g1", "window": "g2", "out": "g2"}
    again = world.drain(tmp_path)
    assert again.drained
    ask(again, "fill")
    assert set(world.on.values()) == {"g1"}
    assert not world.drain(tmp_path).drained
    assert not (tmp_path / FILE).exists()


def test_a_move_whose_answer_was_lost_is_undone_by_the_fill_too(tmp_path: Path) -> None:
    world = World()
    world.error = "the coordinator died"
    assert ask(world.drain(tmp_path), "drain")["stays"] == {"air": "the coordinator died"}
    world.error = ""
    ask(world.drain(tmp_path), "fill")
    assert set(world.on.values()) == {"g1"}


def test_a_fill_that_fails_can_be_asked_for_again(tmp_path: Path) -> None:
    world = World()
    drain = world.drain(tmp_path)
    ask(drain, "drain")
    world.error, world.makes = "the plan of flow air is being changed; try again", False
    assert list(ask(drain, "fill")["stays"]) == ["air"]
    assert not drain.drained
    world.error, world.makes = "", True
    again = world.drain(tmp_path)
    assert not again.drained
    assert ask(again, "fill")["stays"] == {}
    assert set(world.on.values()) == {"g1"}


def test_what_was_moved_on_stays_there_and_the_rest_comes_back(tmp_path: Path) -> None:
    world = World()
    drain = world.drain(tmp_path)
    ask(drain, "drain")
    world.on["out"] = "g3"
    assert ask(drain, "fill")["stays"] == {}
    assert world.on == {"in": "g1", "window": "g1", "out": "g3"}
    ask(drain, "drain")
    world.on = {}
    assert ask(drain, "fill")["stays"] == {}


@pytest.mark.parametrize("text", ["[1]", '{"air": {"window": "g2"}}', '{"drained": true, "moved": [1]}'])
def test_a_file_that_is_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(EdgertError, match="remove it to end that"):
        World().drain(tmp_path)


def test_a_drain_that_is_asked_for_amid_a_fill_comes_after_it(tmp_path: Path) -> None:
    """The end of the fill ended it before: the board said that it is drained, and took operators."""
    world = World()
    drain = world.drain(tmp_path)
    ask(drain, "drain")

    async def both() -> None:
        filling, goes_on = asyncio.Event(), asyncio.Event()
        relieve = drain._flows.control["fleet.relieve"]

        async def slow(args: Mapping[str, Any]) -> Any:
            filling.set()
            await goes_on.wait()
            return await relieve(args)

        drain._flows.control["fleet.relieve"] = slow
        fill = asyncio.ensure_future(drain.serve("g1", {"verb": "fill"}))
        await filling.wait()
        again = asyncio.ensure_future(drain.serve("g1", {"verb": "drain"}))
        await asyncio.sleep(0)
        goes_on.set()
        await asyncio.gather(fill, again)

    asyncio.run(both())
    assert drain.drained
    assert world.on["window"] == "g2"
    assert world.drain(tmp_path).drained


def test_a_drain_that_cannot_begin_leaves_the_board_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said that there is no other board, and the board took no operators any more."""

    def none(_: FleetDrain) -> Any:
        raise EdgertError("expected another board")

    monkeypatch.setattr(FleetDrain, "_others", none)
    drain = World().drain(tmp_path)
    with pytest.raises(EdgertError, match="expected another board"):
        ask(drain, "drain")
    assert not drain.drained
    assert not World().drain(tmp_path).drained
