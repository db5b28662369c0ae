"""Moves that people read: who asked for them, and what they cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from agent.fleet.flows import FleetFlows
from agent.fleet.history import FILE, MoveHistory, Why
from agent.fleet.moves import FleetMoves
from agent.interference.ring import NOTHING
from agent.membership.members import Section
from edgert.core.clock import VirtualClock
from edgert.core.packing import pack
from edgert.core.settings.agent import Moves

BEFORE = {"in": "g1", "window": "g1", "out": "g2"}
MADE: dict[str, Any] = {
    "flow": "air", "plan": 7, "assignment": {**BEFORE, "window": "g3", "out": "g3"}, "pause_s": 0.25,
    "rows_delayed": 40, "ahead_bytes": 9_000, "paused_bytes": 1_000,
}  # fmt: skip


def test_a_move_that_people_ask_for_is_told_with_who_asked_and_what_it_cost() -> None:
    history = MoveHistory(VirtualClock(wall=100.0))
    history.note(BEFORE, Why("person", "asked for at g2"), MADE)
    assert list(history.kept) == [{
        "at": 100.0, "flow": "air", "from": "g1, g2", "to": "g3", "by": "person",
        "reason": "air: window to g3, out to g3 (asked for at g2)", "plan": 7, "pause_s": 0.25, "rows_delayed": 40,
        "ahead_bytes": 9_000, "paused_bytes": 1_000,
    }]  # fmt: skip
    assert {name: figures["person"] for name, figures in history.totals.items()} == {
        "moves": 1, "pause_s": 0.25, "bytes": 10_000, "rows_delayed": 40,
    }  # fmt: skip


def test_many_operators_are_counted_not_named() -> None:
    history, many = MoveHistory(VirtualClock()), {f"window#{n}": "g1" for n in range(1, 10)}
    made = {**MADE, "assignment": dict.fromkeys(many, "g2")}
    history.note(many, Why("drain", "drain of g1"), made)
    assert history.kept[0]["reason"].endswith("window#6 to g2, 3 more (drain of g1)")


def test_moves_outlive_the_agent_and_a_damaged_file_does_not_stop_it(tmp_path: Path) -> None:
    MoveHistory(VirtualClock(), tmp_path).note(BEFORE, Why("drain", "drain of g1"), MADE)
    again = MoveHistory(VirtualClock(), tmp_path)
    assert [move["by"] for move in again.kept] == ["drain"]
    assert again.totals["moves"]["drain"] == 0
    for damaged in ("[", "{}", "[1]"):
        (tmp_path / FILE).write_text(damaged)
        assert not MoveHistory(VirtualClock(), tmp_path).kept


class OneFlow:
    """A flow whose coordinator is the agent of g1, and whose changes of plan are made at once."""

    def __init__(self) -> None:
        me = cast(Any, self)
        self.own = SimpleNamespace(name="g1")
        self.leases, self.board, self.cores, self.bandwidth = None, NOTHING, 1.0, 1e6
        self.flows = FleetFlows("g1", me, me, me, me, MoveHistory(VirtualClock()))
        self.flows.control.clear()
        self.moves = FleetMoves(Moves(), me, me, self.flows, me, me, VirtualClock())
        made = cast(Any, self.flows)
        made.changing, made.running, made.parts, made.change = self.changing, self.running, self.parts, self.change
        made.check, made.write_rules = self.check, self.write_rules

    def __iter__(self) -> Iterator[Any]:
        """The members, which all have links."""
        for name in ("g1", "g2", "g3"):
            yield SimpleNamespace(name=name, sections={"board": Section(1, 1, pack({"link": [name, 8883]}))})

    @asynccontextmanager
    async def changing(self, flow: str) -> AsyncIterator[None]:
        yield

    async def running(self, flow: str) -> Any:
        assignment = {operator: [at, -1] for operator, at in BEFORE.items()}
        return {"g1": {"assignment": assignment, "plan": 1, "document": {}}}

    async def parts(self, flow: str = "") -> Any:
        return {board: {} for board in ("g1", "g2", "g3")}

    async def write_rules(self, flow: str, parts: Any, rules: Any) -> Any:
        return parts

    async def check(self, document: Any) -> Any:
        return {operator: {"source": False, "type": "map", "inputs": ()} for operator in BEFORE}

    async def change(self, flow: str, parts: Any, after: Mapping[str, str], why: Why) -> Any:
        self.flows.history.note(BEFORE, why, {**MADE, "assignment": after})
        return MADE

    def reasons(self, verb: str, args: Mapping[str, Any]) -> list[str]:
        asyncio.run(self.flows.serve_coordinator("g2", {"verb": verb, "args": args}))
        return [move["reason"] for move in self.moves._told_here()["moves"]]


def test_fleet_moves_tells_of_moves_by_people_and_by_drains_too() -> None:
    asked = {"flow": "air", "moves": {"window": "g3"}, "asked": "g2"}
    assert OneFlow().reasons("move", asked) == ["air: window to g3 (asked for at g2)"]
    drain = {"flow": "air", "moves": {"window": "g3"}, "from": "g1", "drain": True, "reason": "drain of g1"}
    assert OneFlow().reasons("relieve", drain) == ["air: window to g3 (drain of g1)"]
    crowded = {"flow": "air", "moves": {"window": "g3"}, "from": "g1", "reason": "air/window moves to g3: crowded"}
    assert OneFlow().reasons("relieve", crowded) == ["air/window moves to g3: crowded"]


def test_a_move_that_its_own_coordinator_ends_later_keeps_its_mover_and_reason() -> None:
    history = MoveHistory(VirtualClock())
    history.unfinished["air"] = 7, BEFORE, Why("board", "window moves to g3: it is freer")
    after = {operator: [at, -1] for operator, at in MADE["assignment"].items()}
    joined = {"prepared_plan": 7, "prepared_assignment": after}
    history.note_ended("air", 7, {"g1": {"plan": 7}, "g3": joined}, {"pause_s": 2.0, "rows_delayed": 3})
    (told,) = history.kept
    assert (told["by"], told["reason"], told["pause_s"]) == ("board", "window moves to g3: it is freer", 2.0)
    history.note_ended("air", 9, {"g3": {**joined, "prepared_plan": 9}}, {"pause_s": 2.0, "rows_delayed": 3})
    assert len(history.kept) == 1, "where it was before is not known"
