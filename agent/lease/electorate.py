"""Which boards vote is changed by those that vote, one board after the other.

A change is written like a record of a flow: under a lease, by a number that a majority promised. Before it, a majority
is told all that a majority remembers of flows; so what was written while fewer boards voted is read by every majority
of more. Of voters before and after one change every two majorities share a board: of two changes at the same time one
fails (Ongaro, "Consensus: Bridging Theory and Practice", 2014, section 4.1, with the rule of its erratum: a coordinator
first writes the voters of before by its own number).

A new board is no voter until the others made it one. The first board of a fleet begins alone.

Fleets that began apart become one: a board joins the other fleet where a majority of that one votes, and its own has no
majority for as long as it takes to forget a board, or fewer boards (those that have already joined count towards its
majority). One that joins has no vote until it is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from random import Random
from typing import Final

from agent.lease.fences import mark, next_fence
from agent.lease.grants import Grants, gathered, grants_untrusted, is_number
from agent.lease.leases import Lease, LeaseError, Leases
from agent.lease.memory import VOTERS, LeaseMemory
from agent.lease.voters import Voters, dead_s, is_majority
from agent.membership.members import State
from agent.membership.roster import Roster
from edgert.core.clock import Clock
from edgert.core.errors import EdgertError, show

log = logging.getLogger(__name__)
RESIGN_S: Final = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
"""Wait between two tries to add a board that does not store what it is told."""
TOLD, FEW = 16, 3
"""Most boards that a board asks in one look who votes: a new one, and one that knows its fleet and has no vote yet."""
LATER_S: Final = 30.0
"""Time by which a board may have noticed a death later than the one that says so."""
YOUNG_S: Final = 120.0
"""A board that came, was there for a shorter time and is dead is no voter any more when it may be forgotten."""


def _rank(voters: Voters) -> tuple[int, str, int, int]:
    """Returns the rank of voters. Of two fleets with a majority each, the one of greater rank goes on; so does that
    half of a fleet which people divided."""
    return len(voters.names), voters.fleet, voters.number, voters.step


class Electorate:
    """This agent's part in changes of the voters."""

    def __init__(
        self, leases: Leases, roster: Roster, clock: Clock, random: Random, may_begin: Callable[[], bool],
        refused: Callable[[], Collection[str]] = frozenset,
    ) -> None:  # fmt: skip
        """`may_begin`: may a board without a fleet be the first one? `refused`: boards that are no members by the list
        of revoked certificates."""
        self._leases, self._roster, self._clock, self._random = leases, roster, clock, random
        self._may_begin, self._refused = may_begin, refused
        self._memory: LeaseMemory = leases.memory
        self._steady_since = clock.monotonic()
        """When this agent began, or gained or lost its majority last. Boards that it does not hear of since then are no
        part of that majority."""
        self._had_majority = False
        self._failing_since: float | None = None
        """When this board's fleet had no majority first, while another one has."""
        self._pause_s, self._again_at = FIRST_PAUSE_S, float("-inf")
        self._tended: tuple[str, ...] = ()
        """Boards that were to be added or removed at the last look, and were not all."""
        self._elsewhere: Collection[str] = ()
        self._began = clock.monotonic()
        self._memory.agrees = self._agrees

    async def look(self, able: Collection[str], elsewhere: Collection[str] = ()) -> None:
        """To be called every few seconds. `able`: the first of these boards by name adds and removes others;
        `elsewhere`: boards of another fleet, which are not added. Raises `EdgertError`."""
        leases, memory = self._leases, self._memory
        self._elsewhere = elsewhere
        if leases.has_majority() != self._had_majority:
            self._had_majority, self._steady_since = not self._had_majority, self._clock.monotonic()
        memory.grants.refused = frozenset(map(mark, self._refused()))
        if leases.name not in leases.members:
            await self._meet(TOLD if not memory.voters.names else FEW)
        elif leases.name in leases.members and not memory.votes:
            if memory.may_learn:
                memory.learn(await self._gather())
                await memory.keep()
                log.info("this board, whose disk was new, was told what the fleet remembers, and votes again")
        elif leases.name in leases.members and leases.name == min(able) and self._to_do():
            await self._tend()

    async def compare(self) -> None:
        """Exchanges with another board, at random, what is known of the voters; so fleets hear of each other."""
        if others := sorted(self._present() - {self._leases.name}):
            with contextlib.suppress(EdgertError):
                await self._leases.tell(self._random.choice(others))
        await self._choose()

    async def _choose(self) -> None:
        """Joins the other fleet that this board has heard of, if that one goes on."""
        leases, memory, now = self._leases, self._memory, self._clock.monotonic()
        rival, memory.rival = memory.rival, Voters()
        failing_since, self._failing_since = self._failing_since, None
        asked = sorted((self._present() - {leases.name}) & set(rival.names))
        if not is_majority(asked, rival.names):
            return
        told = await asyncio.gather(*map(leases.tell, asked), return_exceptions=True)
        theirs = {name: voters for name, voters in zip(asked, told, strict=True)
                  if isinstance(voters, Voters) and voters.fleet == rival.fleet}  # fmt: skip
        agreed = [one for one in theirs.values()
                  if is_majority([name for name, told in theirs.items() if told == one], one.names)]  # fmt: skip
        if not agreed:
            return
        rival = max(agreed, key=_rank)
        answers, goes_on = await leases.ask("known", VOTERS, 0), _rank(rival) > _rank(memory.voters)
        voting = {name for name, answer in answers.items() if answer["votes"]}
        records = {name: record for name, answer in answers.items() if isinstance(record := answer.get("voters"), list)}
        joined = {name for name, record in records.items() if record[:1] == [rival.fleet]}
        if not is_majority(voting, leases.members):
            memory.rival, self._failing_since = rival, now if failing_since is None else failing_since
            follows = goes_on and is_majority(voting | joined, leases.members)
            if not follows and now - self._failing_since < dead_s(len(leases.members)):
                return
        elif not goes_on:
            return
        if rival.fleet == memory.voters.fleet and leases.name in rival.names:
            memory.adopt(rival)
        else:
            log.warning("this board joins another fleet of the same key, of %s", ", ".join(rival.names))
            memory.join(rival)
        await memory.keep()

    async def _tend(self) -> None:
        """Adds and removes boards. Where one cannot be added it is tried more and more seldom: all write each time."""
        before, self._tended = self._tended, self._to_do()
        if self._tended != before:
            self._pause_s, self._again_at = FIRST_PAUSE_S, float("-inf")
        if self._clock.monotonic() < self._again_at:
            return
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._again_at = self._clock.monotonic() + self._pause_s
        self._leases.disputing.clear()
        await self._change(self._next)
        if not self._to_do():
            self._tended = ()

    # -- a board without a fleet

    def gone(self) -> set[str]:
        """Returns the boards that have left, or are no members by the list of revoked certificates."""
        return {member.name for member in self._roster if member.state is State.LEFT} | set(self._refused())

    def _present(self) -> set[str]:
        """The boards that the membership holds for alive, this one included, that are not revoked."""
        return {member.name for member in self._roster if member.state is State.ALIVE} - set(self._refused())

    async def _meet(self, most: int) -> None:
        """Asks others who votes in their fleet. Of boards that all have none the first by name begins one."""
        name, present = self._leases.name, self._present()
        others = sorted(present - {name})
        asked = self._random.sample(others, min(most, len(others)))
        await asyncio.gather(*map(self._leases.tell, asked), return_exceptions=True)
        if not self._memory.voters.names and name == min(present, default="") and self._may_begin():
            self._memory.begin(f"{name} {self._random.getrandbits(64):016x}")
            await self._memory.keep()
            log.info("this board begins a fleet")

    # -- changes

    def _was_brief(self, name: str) -> bool:
        """True of a board that came while this one was here, was there for a short time only, as with a wrong name, and
        has been dead for as long as one that people forget."""
        member, now = self._roster.get(name), self._clock.monotonic()
        if member is None or member.state is not State.DEAD or member.first_at - self._began < YOUNG_S:
            return False
        return member.since - member.first_at < YOUNG_S and now - member.since >= dead_s(len(self._leases.members))

    def _agrees(self, voters: Voters, teller: str) -> bool:
        """True if what this board sees explains a change of voters: who comes is here, and who goes has left, is
        revoked, says so itself, or has been dead for about as long as it takes to be forgotten."""
        before, after = set(self._memory.voters.names), set(voters.names)
        known = {member.name for member in self._roster if member.present}
        return after - before <= known - set(self._refused()) and all(
            name == teller or self._is_gone(name) for name in before - after
        )

    def _is_gone(self, name: str) -> bool:
        member = self._roster.get(name)
        if name in self._refused() or (member is not None and member.state is State.LEFT):
            return True
        since = self._began if member is None else member.since
        present = name == self._leases.name or (member is not None and member.present)
        return not present and self._clock.monotonic() - since >= dead_s(len(self._leases.members)) - LATER_S

    def _to_do(self) -> tuple[str, ...]:
        """Boards to be added or removed, and voters that have other voters stored: all are told anew."""
        return *self._next(self._memory.voters), *sorted(self._leases.disputing & self._leases.members)

    def _next(self, voters: Voters) -> tuple[str, ...]:
        """Boards that can be added or are to be removed."""
        names = set(voters.names)
        left = self.gone() | {name for name in names if self._was_brief(name)}
        return *sorted(names & left), *sorted(self._present() - names - set(self._elsewhere))

    async def _change(self, asked: Callable[[Voters], Collection[str]]) -> None:
        """Adds boards that do not vote, and removes those that do, one by one. Raises `LeaseError`."""
        leases, memory = self._leases, self._memory
        async with leases.held(VOTERS) as lease:
            failed = set[str]()
            await self._write(lease, memory.voters.names)
            while boards := [board for board in asked(memory.voters) if board not in failed]:
                names, board = set(memory.voters.names), boards[0]
                learnt = await self._share(lease, {board} - names)
                if board in names:
                    names.remove(board)
                elif board in learnt:
                    names.add(board)
                else:
                    failed.add(board)
                    continue
                if not names:
                    return
                await self._write(lease, names)
                log.info("voters of the fleet: %s", ", ".join(sorted(names)))

    async def _write(self, lease: Lease, names: Collection[str]) -> None:
        """The voters from now on: a board goes by them as soon as it has them."""
        held = self._memory.voters
        step = held.step + 1 if held.number == lease.number else 1
        voters = Voters(held.fleet, lease.number, step, tuple(sorted(names)))
        await self._leases.written(lease, "voters", {"record": voters.plain()}, names)

    async def _share(self, lease: Lease, also: Collection[str]) -> set[str]:
        """Tells a majority, and boards `also`, what a majority remembers. Returns those that were told."""
        grants = await self._gather()
        told = {"grants": grants.plain()}
        answers = await self._leases.ask("learn", VOTERS, grants.floor, told, also)
        learnt = {name for name, answer in answers.items() if answer.get("learnt") is True}
        if not is_majority(learnt, self._leases.members):
            self._leases.check_majority(lease.flow, answers)
            raise LeaseError("the fleet's voters: too few boards have stored what the fleet remembers; try again")
        return learnt

    async def _gather(self) -> Grants:
        """Promises and records that a majority remembers. Raises `LeaseError`."""
        now = self._clock.monotonic()
        answers = await self._leases.ask("copy", VOTERS, 0)
        self._leases.check_majority(VOTERS, answers)
        found: list[Grants] = []
        for name, answer in answers.items():
            floor = answer.get("floor")
            if answer.get("votes") is not True:
                continue
            try:
                grants = grants_untrusted(answer.get("grants"))
            except ValueError as error:
                raise LeaseError(f"what {name} remembers: {error}") from error
            found.append(Grants(grants, now, floor if is_number(floor) else 0))
        return gathered(found, now)

    # -- for people

    async def forget(self, board: str, *, force: bool) -> list[str]:
        """The board votes no more. Returns the boards that were told. Raises `EdgertError` where it may live; with
        `force` also without a majority."""
        leases, member = self._leases, self._roster.get(board)
        others = sorted(leases.members - {leases.name})
        if board not in others:
            what = "is this board" if board == leases.name else "does not vote in this fleet (any more)"
            raise EdgertError(f"{show(board)} {what}: there is nothing to forget. The others that vote:"
                              f" {', '.join(others) or 'none'}")  # fmt: skip
        forced = force and not await self._majority_answers()
        if member is not None and member.present and not (forced and board in leases.blank):
            raise EdgertError(f"{board} is {member.state.name.lower()}: run `edgert fleet leave` there")
        least_s = dead_s(len(leases.members))
        since, held = (member.since, "held for dead") if member else (self._steady_since, "not heard of here")
        gone_for_s = self._clock.monotonic() - since
        if gone_for_s < least_s and not (member is not None and member.present):
            raise EdgertError(
                f"{board} is {held} for {gone_for_s:.0f} s only: try again after {least_s:.0f} s. So long it"
                " takes at most until a board that lives and is cut off has stopped what it runs for others"
            )
        told = [name for name in leases.reached() if name not in (leases.name, board)]
        if not forced:
            try:
                await self._change(lambda voters: {board} & set(voters.names))
                return told
            except LeaseError:
                if not force or leases.agree():
                    raise  # else people forced a board to go on before, and have not said so on the others yet
        held_now = self._memory.voters
        number = next_fence([held_now.number, self._memory.grants.promised(VOTERS)], leases.name)
        names = tuple(name for name in held_now.names if name != board)
        self._memory.adopt(Voters(held_now.fleet, number, 1, names))
        log.warning("%s votes no more: people said so, though no majority agreed", board)
        await self._memory.keep()
        await asyncio.gather(*map(leases.tell, told), return_exceptions=True)
        return told

    async def _majority_answers(self) -> bool:
        try:
            await self._leases.read(VOTERS)
        except LeaseError:
            return False
        return True

    async def resign(self) -> str:
        """Ends this board's vote if enough others agree within `RESIGN_S`, before it leaves. Returns what people have
        to do where they do not; empty: nothing."""
        name = self._leases.name
        if self._leases.members - {name}:
            try:
                await asyncio.wait_for(self._change(lambda voters: {name} & set(voters.names)), RESIGN_S)
            except (EdgertError, TimeoutError) as error:
                log.warning("the fleet still counts this board: %s", str(error) or f"no majority within {RESIGN_S:g} s")
                return (
                    f"the fleet still counts {name}, as too few boards agreed in time. On another board, in three"
                    f" minutes: edgert fleet forget {name}; with --force where most boards do not answer"
                )
        return ""
