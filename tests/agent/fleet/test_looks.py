"""A board's look at its load, in a simulated fleet whose moves take no time."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from agent.interference.peaks import Load
from benchmarks.interference.world import CAPACITY, LOOK_S, Board, BoardAgent, Fleet, Work, steady
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
