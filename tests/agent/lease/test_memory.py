"""What a board answers of what it remembers. Time is virtual."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agent.lease.grants import LEASE_S, Record
from agent.lease.memory import VOTE_S, VOTERS, LeaseMemory
from agent.lease.voters import Voters
from edgert.core.clock import VirtualClock

OWN = Voters("a 1", 3, 1, ("a", "b", "c"))
OTHER = Voters("z 2", 1, 1, ("w", "x", "y", "z"))


def memory(clock: VirtualClock, *, remembers: bool) -> LeaseMemory:
    stored = json.dumps({"voters": OWN.plain(), "remembers": remembers})
    return LeaseMemory("c", clock, stored, lambda _: None)


async def learns(board: LeaseMemory) -> Any:
    asked = {"verb": "learn", "flow": VOTERS, "number": 0, "voters": OWN.plain(), "grants": {}}
    return (await board.serve("a", asked)).get("learnt")


async def new_disk(clock: VirtualClock) -> None:
    board = memory(clock, remembers=False)
    clock.advance(LEASE_S + VOTE_S - 1)
    assert await learns(board) is None
    assert not board.votes
    clock.advance(1)
    assert await learns(board) is True
    assert board.votes


async def another_fleet(clock: VirtualClock) -> None:
    board = memory(clock, remembers=True)
    clock.advance(100)
    await board.serve("w", {"verb": "known", "voters": OTHER.plain()})
    await board.serve("w", {"verb": "known", "voters": Voters(OTHER.fleet, 0, 1, ("w",)).plain()})
    assert (board.voters, board.rival, board.votes) == (OWN, OTHER, True)
    board.join(OTHER)
    assert (board.voters, board.votes) == (OTHER, False)
    board.join(OWN)
    assert await learns(board) is None
    clock.advance(LEASE_S + VOTE_S)
    assert await learns(board) is True


@pytest.mark.parametrize("story", [new_disk, another_fleet])
def test_a_voter_that_remembers_nothing_is_told_nothing_before_what_it_promised_is_over(story: Any) -> None:
    """A change of other voters taught it at once: what it had stored in the four seconds before was forgotten."""
    asyncio.run(story(VirtualClock()))


def test_a_board_that_was_forgotten_by_force_remembers_nothing_that_would_win_by_its_number() -> None:
    board = memory(VirtualClock(), remembers=True)
    assert board.adopt(Voters(OWN.fleet, 4, 2, ("a", "b", "c")))
    board.grants.write("air", Record(9, 1, "removed"), "c", 0.0)
    assert board.adopt(Voters(OWN.fleet, 5, 2, ("a", "b")))
    assert board.record("air") == Record(), "of two that were forgotten the second one was so by a majority"
    board.grants.write("air", Record(9, 1, "removed"), "c", 0.0)
    assert board.record("air").number == 9
    assert board.adopt(Voters(OWN.fleet, 6, 2, ("a", "b", "c")))
    assert board.adopt(Voters(OWN.fleet, 7, 1, ("a",)))
    assert (board.record("air"), board.votes) == (Record(), False)
