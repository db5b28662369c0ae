"""A member that lies in every message about leases and voters, on a virtual clock: nothing of it outlives it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from random import Random
from typing import Any

import pytest

from agent.lease.fences import mark, next_fence
from agent.lease.leases import VERB
from agent.lease.memory import VOTERS
from agent.simulation.fleet import VirtualFleet
from edgert.core.errors import EdgertError
from tests.agent.simulation.worlds import FLOW, ask, members, tell

LIES = int(os.environ.get("EDGERT_LIES", "400"))
SEEDS = range(int(os.environ.get("EDGERT_LIE_SEEDS", "2")))
LIAR = "d"
VERBS = ("take", "renew", "read", "write", "release", "copy", "learn", "promised", "voters", "known")


def number(draw: Random, known: int) -> int:
    near = next_fence([known], LIAR)
    return draw.choice([near, near, known, 2**63 - 1, 2**62, known + (1 << 47) | mark(LIAR), 0, draw.getrandbits(63)])


def lie(draw: Random, fleet: VirtualFleet, at: str) -> dict[str, Any]:
    """A message about leases that is well-formed, and untrue in some or all of its fields."""
    memory = fleet.agents[at].flows.leases.memory
    mark_of_fleet = draw.choice([memory.voters.fleet] * 6 + ["z"])
    names = draw.choice([[LIAR], [LIAR, at], ["a", LIAR], [f"x{i}" for i in range(40)], ["a", "b", "c"], []])
    flow = draw.choice([VOTERS, "air", f"invented-{draw.randrange(2_000)}"])
    known = max(memory.grants.promised(flow), memory.voters.number)
    chosen = number(draw, known)
    record = draw.choice([[chosen, 1, draw.choice(["runs", "removed", "deploying"]), names],
                          [mark_of_fleet, chosen, draw.choice([1, 2**63 - 1]), names]])  # fmt: skip
    grants = {one: [number(draw, known), LIAR, [number(draw, known), 1, "runs", names]] for one in (flow, "air")}
    return {"verb": draw.choice(VERBS), "flow": flow, "number": chosen, "record": record, "grants": grants, "to": LIAR,
            "voters": [mark_of_fleet, number(draw, known), 1, names], "votes": True}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_a_member_that_lies_about_votes_and_leases_keeps_nothing_once_it_is_gone(seed: int) -> None:
    async def story(fleet: VirtualFleet) -> None:
        draw = Random(seed)
        honest = frozenset("abc")
        for _ in range(LIES):
            at = draw.choice("abc")
            try:
                await fleet.agents[at].serve(LIAR, VERB, lie(draw, fleet, at))
            except EdgertError:
                pass
            await asyncio.sleep(draw.choice([0.0, 0.05, 0.5]))
        told = {fleet.agents[name].flows.leases.members - {LIAR} for name in "abc"}
        assert told == {honest}, "while it lies; its own vote it may give up"
        fleet.die(LIAR)
        await asyncio.sleep(200)
        for _ in range(8):  # people try again where they are told to
            with contextlib.suppress(EdgertError):
                await ask(fleet, "a", "forget", board=LIAR)
            await asyncio.sleep(60)
        await asyncio.sleep(400)
        assert members(fleet) == {honest}
        assert (await ask(fleet, "a", "deploy", document=FLOW))["assignment"]

    tell(story, 4, seed=seed)


def test_one_message_about_voters_takes_no_vote() -> None:
    async def story(fleet: VirtualFleet) -> None:
        for at in "abc":
            fleet_mark = fleet.agents[at].flows.leases.memory.voters.fleet
            told = {"verb": "known", "voters": [fleet_mark, 2**63 - 1, 0, ["liar"]]}
            await fleet.agents[at].serve(LIAR, VERB, told)
        await asyncio.sleep(60)
        assert members(fleet) == {frozenset("abcd")}
        assert (await ask(fleet, "b", "deploy", document=FLOW))["assignment"]

    tell(story, 4)
