"""The leases of several boards: requests between them are calls, time is virtual."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any

import pytest

from agent.lease.fences import next_fence
from agent.lease.grants import LEASE_S
from agent.lease.leases import LeaseError, Leases
from agent.lease.memory import LeaseMemory
from agent.lease.voters import Voters
from agent.membership.members import Member, State, Version
from agent.membership.roster import Roster
from agent.simulation.loop import LoopClock, VirtualLoop
from edgert.core.errors import EdgertError

NAMES = ("a", "b", "c")
LATER = max(NAMES, key=lambda name: next_fence([], name))
"""Of two coordinators that count from the same number on, this one has the greater next one."""
SOONER = min(NAMES, key=lambda name: next_fence([], name))
VOTERS = Voters("a 1", 1, 0, NAMES).plain()
ALIVE = Version(1, 0, State.ALIVE)


class Boards:
    """The leases of three boards on one loop. A board in `cut` neither sends nor receives."""

    def __init__(self) -> None:
        self._clock = LoopClock(asyncio.get_running_loop())
        self.cut: set[str] = set()
        known = {"voters": VOTERS, "remembers": True}
        self.disks = dict.fromkeys(NAMES, json.dumps(known))
        self.of: dict[str, Leases] = {}
        self.asked: list[str] = []
        for name in NAMES:
            self.of[name] = self.leases(name, self.disks[name])

    def leases(self, name: str, stored: str) -> Leases:
        roster = Roster(Member(name, (name, 1), ALIVE, 0.0), Random(0), len(NAMES))
        for other in NAMES:
            if other != name:
                roster.add(other, (other, 1), ALIVE, 0.0)
        store = lambda text: self.disks.update({name: text})  # noqa: E731
        memory = LeaseMemory(name, self._clock, stored, store)
        return Leases(memory, roster, self._request_of(name), self._clock, Random(name))

    def _request_of(self, sender: str) -> Callable[[str, str, Mapping[str, Any], float], Awaitable[Any]]:
        async def request(to: str, verb: str, args: Mapping[str, Any], timeout_s: float) -> Any:
            self.asked.append(f"{sender} {args['verb']}")
            if {sender, to} & self.cut:
                await asyncio.sleep(timeout_s)
                raise EdgertError(f"{to} does not answer")
            return await self.of[to].memory.serve(sender, args)

        return request

    def records(self) -> set[tuple[str, tuple[str, ...]]]:
        return {
            (record.state, record.boards) for record in (leases.memory.record("air") for leases in self.of.values())
        }


def run(scenario: Callable[[Boards], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(Boards())

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


def test_a_coordinator_that_was_paused_beyond_its_lease_writes_nothing_over_the_next_one() -> None:
    async def scenario(boards: Boards) -> None:
        async with boards.of[LATER].held("air") as paused:
            await paused.write("deploying", ["a"])
            boards.cut.add(LATER)
            await asyncio.sleep(2 * LEASE_S)
            async with boards.of[SOONER].held("air") as lease:
                assert lease.record.state == "deploying"
                boards.cut.clear()
                with pytest.raises(LeaseError, match="flow air: the lease of"):
                    await paused.write("runs", ["a"])
                await lease.write("removing", ["a"])
                await paused.note("runs", ["a"])
        for leases in boards.of.values():
            record = await leases.read("air")
            assert (record.state, record.boards) == ("removing", ("a",))

    run(scenario)


def test_boards_refuse_a_coordinator_that_does_not_know_yet_that_it_lost_its_lease() -> None:
    """As a process that stood still between its look at the clock and its packet: only the boards know."""

    async def scenario(boards: Boards) -> None:
        async with boards.of[LATER].held("air") as paused:
            await paused.write("deploying", ["a"])
            boards.cut.add(LATER)
            await asyncio.sleep(2 * LEASE_S)
            async with boards.of[SOONER].held("air") as lease:
                boards.cut.clear()
                paused.until = float("inf")
                for _ in range(3):
                    with pytest.raises(LeaseError, match="another coordinator changes it now"):
                        await paused.write("runs", ["a"])
                await lease.write("removing", ["a"])
            async with boards.of[SOONER].held("air") as lease:
                assert (lease.record.state, lease.record.boards) == ("removing", ("a",))

    run(scenario)


def test_a_coordinator_whose_renewal_is_refused_stops_writing_before_its_time_is_over() -> None:
    async def scenario(boards: Boards) -> None:
        async with boards.of["a"].held("air") as lease:
            for name in ("b", "c"):  # as boards that lost their cards, and granted the flow to another one then
                await boards.of[name].memory.serve(
                    "a", {"verb": "release", "flow": "air", "number": lease.number, "voters": VOTERS}
                )
                number = next_fence([lease.number], "b")
                await boards.of[name].memory.serve(
                    "b", {"verb": "take", "flow": "air", "number": number, "voters": VOTERS}
                )
            await asyncio.sleep(LEASE_S / 3 + 0.1)
            boards.asked.clear()
            with pytest.raises(LeaseError, match="flow air: the lease of a"):
                await lease.write("runs", ["a"])
            assert boards.asked == []

    run(scenario)


def test_a_coordinator_keeps_its_lease_for_as_long_as_a_majority_renews_it() -> None:
    async def scenario(boards: Boards) -> None:
        async with boards.of["a"].held("air") as lease:
            boards.cut.add("c")
            await asyncio.sleep(5 * LEASE_S)
            await lease.write("runs", ["a"])
            boards.cut.add("b")
            await asyncio.sleep(LEASE_S / 2)
            boards.cut.clear()  # a short cut loses nothing
            await asyncio.sleep(LEASE_S)
            await lease.write("runs", ["a", "b"])

    run(scenario)


def test_a_late_record_of_the_same_coordinator_does_not_replace_its_next_one() -> None:
    async def scenario(boards: Boards) -> None:
        async with boards.of["a"].held("air") as lease:
            await lease.write("deploying", ["a"])
            late = {
                "verb": "write",
                "voters": VOTERS,
                "flow": "air",
                "number": lease.number,
                "record": lease.record.plain(),
            }
            await lease.write("runs", ["a"])
            assert (await boards.of["b"].memory.serve("a", late))["wrote"] is False
        assert boards.records() == {("runs", ("a",))}

    run(scenario)


def test_the_floor_outlives_a_restart() -> None:
    async def scenario(boards: Boards) -> None:
        async with boards.of["a"].held("air") as lease:
            await lease.write("removed", [])
        plain = json.loads(boards.disks["b"])
        plain["grants"], plain["floor"] = {}, lease.number
        again = boards.leases("b", json.dumps(plain))
        refused = await again.memory.serve(
            "a", {"verb": "take", "flow": "air", "number": lease.number, "voters": VOTERS}
        )
        assert (refused["granted"], refused["promised"]) == (False, lease.number)

    run(scenario)


@pytest.mark.parametrize(
    ("flow", "number"),
    [("", 1), ("x" * 64, 1), ("Air", 1), (7, 1), (None, 1), ("air", -1), ("air", 2**63), ("air", True), ("air", "1")],
)
@pytest.mark.parametrize("verb", ["take", "renew", "write", "read", "release"])
def test_bad_requests_are_refused_and_leave_nothing(verb: str, flow: object, number: object) -> None:
    async def scenario(boards: Boards) -> None:
        before = boards.disks["a"]
        with pytest.raises(EdgertError, match="expected"):
            await boards.of["a"].memory.serve("b", {"verb": verb, "flow": flow, "number": number})
        assert boards.disks["a"] == before

    run(scenario)
