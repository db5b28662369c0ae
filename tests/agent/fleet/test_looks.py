"""A board's look at its load, in a simulated fleet whose moves take no time."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from agent.fleet.moves import EXPECTED_S
from agent.interference.peaks import Load
from agent.interference.ring import pack
from agent.migration.plan_change import UnfinishedError
from agent.network.transport import UnansweredError
from benchmarks.interference.world import CAPACITY, LOOK_S, Board, BoardAgent, Fleet, Work, steady
from edgert.core.errors import EdgertError
from edgert.core.settings.agent import Moves
from tests.agent.interference.worlds import flat


def agent_of(needs: float, **others: float) -> BoardAgent:
    """Of board `a`, that needs so much of its CPU for ten instances; so do the others."""
    boards = [
        Board(name, {f"{name}{n}": Work(steady(20.0), need / 200, 100.0) for n in range(10)})
        for name, need in {"a": needs, **others}.items()
    ]
    fleet = Fleet(boards, Random(1))
    for _ in fleet.run(0.0, 10 * LOOK_S):
        pass
    return fleet.agents["a"]


def test_peaks_and_the_load_of_now_are_what_was_read_and_not_what_is_predicted() -> None:
    agent = agent_of(0.4)
    agent.runs.ring = flat(5.0)
    agent.fleet.clock.advance(3_600.0)
    asyncio.run(agent.moves.look())
    used = Load(0.4 / agent.moves.room.cpu, 20_000 / CAPACITY.link / 0.95)
    assert agent.moves.exchange.peaks.load == pytest.approx(used)
    assert agent.moves.past_prediction.now == pytest.approx(used)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_board_in_which_another_program_ran_for_a_minute_takes_what_a_crowded_one_offers(seed: int) -> None:
    """It took nothing for half an hour, and the crowded board said that none had room, at 2 % of use."""
    print(f"seed {seed}")
    rng = Random(seed)
    rate = lambda now: 20.0 * rng.uniform(0.85, 1.15) if now > 700 else 1.0  # noqa: E731
    fleet = Fleet([Board("a", {f"a{n}": Work(rate, 0.085 / 20, 100.0) for n in range(10)}), Board("b", {})], rng)
    for now in fleet.run(0.0, 700.0):
        fleet.boards["b"].external = Load(cpu=0.95 if 400 < now < 460 else 0.0)
    for _ in fleet.run(700.0, 760.0):
        if fleet.moves:
            break
    assert [(giver, taker) for _, _, giver, taker in fleet.moves] == [("a", "b")], fleet.agents["a"].moves.refusals


def test_a_board_that_finds_no_other_one_says_of_each_why() -> None:
    agent = agent_of(0.9, b=0.8)
    for _ in agent.fleet.run(50.0, 1_000.0):
        pass
    (told, *_) = agent.moves.refusals
    assert "stays: no other board takes it: b needed up to" in told["reason"]


def admitted(agent: BoardAgent, copy: str) -> bool:
    asked = {"copies": [copy], "ring": pack(flat(0.2)), "most": 2.0, "urgent": False}
    return bool(asyncio.run(agent.moves.serve_admission("b", asked))["admitted"])


def test_a_drained_board_admits_nothing() -> None:
    agent = agent_of(0.2)
    agent.moves.drained = True
    assert not admitted(agent, "f/window")


def test_an_instance_that_came_is_known_by_its_operators_whatever_it_is_fused_with() -> None:
    agent = agent_of(0.2)
    moves, clock = agent.moves, agent.fleet.clock
    assert admitted(agent, "f/window")
    expected = moves.exchange.peaks.load.cpu
    instances = agent.runs.figures["flows"]["f"]["instances"]
    instances["tracked+window"] = {**instances.pop("a0"), "operators": ["tracked", "window"]}
    for _ in range(2):
        clock.advance(EXPECTED_S / 2 + 1)
        asyncio.run(moves.look())
    assert moves.exchange.peaks.load.cpu == expected
    assert moves.exchange.moved, "the move counts"
    assert not moves.exchange.free(["f/tracked", "f/window"], clock.monotonic()), "it stays"


def test_an_instance_that_did_not_come_takes_neither_room_nor_a_move_of_the_hour() -> None:
    agent = agent_of(0.2)
    before = agent.moves.exchange.peaks.load.cpu
    assert admitted(agent, "f/window")
    agent.fleet.clock.advance(EXPECTED_S + 1)
    asyncio.run(agent.moves.look())
    assert agent.moves.exchange.peaks.load.cpu == pytest.approx(before)
    assert not agent.moves.exchange.moved


def crowded(monkeypatch: pytest.MonkeyPatch, answer: Any, settings: Moves | None = None) -> BoardAgent:
    """Board `a` is over its room, and the change of plan that would relieve it gives or raises `answer`."""

    async def change(*_: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    agent = agent_of(0.4, b=0.0)
    monkeypatch.setattr(agent, "change", change)
    agent.moves._settings = settings or agent.moves._settings
    agent.runs.ring, agent.runs.read = flat(2.0), (2.0, 0.0)
    for _ in range(3):
        agent.fleet.clock.advance(LOOK_S)
        asyncio.run(agent.moves.look())
    return agent


@pytest.mark.parametrize("answer", [UnfinishedError("g3 does not answer"), UnansweredError("g2: no answer")], ids=str)
def test_a_move_of_which_the_end_is_not_known_is_told_as_that(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    agent = crowded(monkeypatch, answer)
    exchange, now = agent.moves.exchange, agent.fleet.clock.monotonic()
    assert agent.moves.counts == {"made": 0, "refused": 0}
    (told,) = agent.moves.refusals
    assert told["to"] == "b"
    assert "is moved to b, perhaps later: g" in told["reason"]
    assert exchange.cooling(now)
    assert exchange.peaks.load.cpu < 2.0 / agent.moves.room.cpu
    assert not exchange.free([told["instance"]], now)


def test_a_move_that_is_refused_is_told_as_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = crowded(monkeypatch, EdgertError("not on a any more"))
    assert agent.moves.counts == {"made": 0, "refused": 1}
    assert not agent.moves.exchange.moved


def test_a_board_that_gave_an_instance_cools_down_and_counts_the_move(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = crowded(monkeypatch, {"pause_s": 0.02})
    assert agent.moves.counts == {"made": 1, "refused": 0}
    assert agent.moves.exchange.cooling(agent.fleet.clock.monotonic())
    assert len(agent.moves.exchange.moved) == 1
    assert agent.moves.exchange.peaks.load.cpu < 2.0 / agent.moves.room.cpu


def test_boards_that_do_not_tell_their_moves_are_named() -> None:
    """Of a fleet whose other boards were away the answer was that there were no moves."""

    async def unanswered(to: str, *_: Any) -> Any:
        raise UnansweredError(f"{to}: no answer")

    agent: Any = agent_of(0.4, b=0.2)
    agent.leases = SimpleNamespace(members=frozenset("abc"))  # c is dead
    agent.moves._request = unanswered
    assert asyncio.run(agent.moves._moves({}))["silent"] == ["b", "c"]
    assert asyncio.run(agent.moves._moves({"all": False}))["silent"] == []


def test_a_board_whose_moves_are_off_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = crowded(monkeypatch, {"pause_s": 0.02}, Moves(enabled=False))
    assert agent.moves.counts == {"made": 0, "refused": 0}
