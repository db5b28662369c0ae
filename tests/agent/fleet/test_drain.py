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
        self.plan, self.pins = 1, dict[str, str]()
        self.state, self.silent = "runs", False
        """The record of the flow, and whether no board with a part of it answers."""
        self.error, self.makes = "", True
        """The coordinator: its answer, and whether it makes the move."""

    def drain(self, folder: Path) -> FleetDrain:
        own = SimpleNamespace(name="g1")
        roster = SimpleNamespace(own=own)
        client = SimpleNamespace(call=self.parts)
        gateway = SimpleNamespace(client=client, figures={}, connected=True)
        flows = SimpleNamespace(
            check=self.check, running=self.running, control={"fleet.relieve": self.relieve},
            leases=SimpleNamespace(read=self.record),
        )  # fmt: skip
        return FleetDrain(
            folder, cast(Any, roster), cast(Any, gateway), cast(Any, flows), cast(Any, SimpleNamespace(rings={})),
            cast(Any, SimpleNamespace(drained=False, drain_damaged=False)), cast(Any, None),
        )  # fmt: skip

    async def parts(self, verb: str) -> Any:
        return {"air": (await self.part("air"))["g1"]}

    async def record(self, flow: str) -> Any:
        return SimpleNamespace(state=self.state)

    async def running(self, flow: str) -> dict[str, Any]:
        if self.silent:
            raise EdgertError("expected a flow of the fleet, got 'air'")
        return await self.part(flow)

    async def part(self, flow: str) -> dict[str, Any]:
        assignment = {operator: [at, -1] for operator, at in self.on.items()}
        rules = {"pins": self.pins}
        part = {"plan": self.plan, "document": DOCUMENT, "assignment": assignment, "rules": rules}
        return {"g1": part}

    async def check(self, document: Any) -> Any:
        return OPERATORS

    async def relieve(self, args: Mapping[str, Any]) -> Any:
        assert all(self.on[operator] == args["from"] for operator in args["moves"])
        if self.makes:
            self.on |= args["moves"]
            self.plan += 1
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


def test_a_fill_says_what_really_came_back(tmp_path: Path) -> None:
    world = World()
    drain = world.drain(tmp_path)
    ask(drain, "drain")
    world.on["out"] = "g3"
    assert ask(drain, "fill")["moved"] == {"air": {"window": "g2"}}
    ask(drain, "drain")
    world.on["window"] = "g3"
    assert ask(drain, "fill")["moved"] == {}


def test_a_flow_whose_boards_do_not_answer_is_not_forgotten_and_one_that_was_removed_is(tmp_path: Path) -> None:
    world = World()
    drain = world.drain(tmp_path)
    ask(drain, "drain")
    world.silent = True
    found = ask(drain, "fill")
    assert list(found["stays"]) == ["air"]
    assert found["moved"] == {}
    world.silent = False
    assert ask(drain, "fill")["stays"] == {}
    assert world.on["window"] == "g1"
    ask(drain, "drain")
    world.state, world.silent = "removed", True
    assert ask(drain, "fill")["stays"] == {}
    assert not (tmp_path / FILE).exists()


def test_a_fill_keeps_to_pins_that_people_set_meanwhile(tmp_path: Path) -> None:
    """One that is pinned here comes back from wherever it is: another drain may have moved it on."""
    world = World()
    drain = world.drain(tmp_path)
    world.pins = {"out": "g1"}
    ask(drain, "drain")
    world.on["out"] = "g3"
    world.pins["window"] = "g2"
    assert ask(drain, "fill")["moved"] == {"air": {"out": "g3"}}
    assert world.on == {"in": "g1", "window": "g2", "out": "g1"}


def test_what_comes_to_a_drained_board_moves_on_unless_people_pinned_it_there(tmp_path: Path) -> None:
    world = World()
    drain = world.drain(tmp_path)
    ask(drain, "drain")
    world.on |= {"window": "g1", "out": "g1"}
    world.pins, world.plan = {"out": "g1"}, 7
    asyncio.run(drain.look())
    assert world.on == {"in": "g1", "window": "g2", "out": "g1"}
    ask(drain, "fill")
    world.on["window"], world.plan = "g1", 9
    asyncio.run(drain.look())
    assert world.on["window"] == "g1", "the board is not drained any more"


def test_a_flow_that_cannot_be_moved_is_not_tried_at_each_look(tmp_path: Path) -> None:
    """A try may let the flow stand still."""
    world = World()
    drain = world.drain(tmp_path)
    world.error, world.makes = "its state is too large", False
    ask(drain, "drain")
    world.error, world.makes = "", True
    asyncio.run(drain.look())
    assert world.on["window"] == "g1"
    world.plan += 1
    asyncio.run(drain.look())
    assert world.on["window"] == "g2"


@pytest.mark.parametrize("text", ["[1]", "{", '{"air": {"window": "g2"}}', '{"drained": true, "moved": [1]}'])
def test_a_file_that_is_something_else_is_set_aside(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text(text)
    drain = World().drain(tmp_path)
    assert (drain.drained, drain.moved, drain._moves.drain_damaged) == (False, {}, True)
    assert [file.name for file in tmp_path.iterdir()] == ["drained.damaged"]
    assert "this board is not drained" in caplog.text


def test_only_boards_that_take_operators_now_are_chosen(tmp_path: Path) -> None:
    """One may be drained, or have lost its gateway, since it told of itself."""
    drain = World().drain(tmp_path)
    answers: dict[str, Any] = {"g2": {"admitted": False}, "g3": {"admitted": True}}

    async def request(board: str, verb: str, args: Any, timeout_s: float) -> Any:
        assert (verb, args) == ("fleet.admit", {"drain": True})
        if board not in answers:
            raise EdgertError("no answer")
        return answers[board]

    drain._request = request
    candidates = [cast(Any, SimpleNamespace(gateway=name)) for name in ("g2", "g3", "g4")]
    assert [one.gateway for one in asyncio.run(drain._consenting(candidates))] == ["g3"]


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
