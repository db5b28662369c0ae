"""The memory of a board: who votes in its fleet, its own votes, and its records of flows. It answers those who ask.

A board with an empty disk (a new card) remembers nothing of what it promised, and does not vote until it has been told
what a majority of the others remembers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from agent.lease.fences import NEAR_STEPS, mark, steps
from agent.lease.grants import LEASE_S, Grants, Record, grants_untrusted, is_number, record_untrusted
from agent.lease.voters import Voters, is_majority, voters_untrusted
from edgert.core.clock import Clock
from edgert.core.errors import EdgertError, show
from edgert.core.ids import FLOW_NAME

log = logging.getLogger(__name__)
VOTERS: Final = "@voters"
"""In place of a flow: the lease under which voters are changed."""
VOTE_S: Final = 4.0
"""Longest wait for a board's vote, which it writes to its card first."""


LEAST_TELLERS: Final = 64
"""Boards of which a board remembers what they told of the voters, beside as many as vote."""
Confirms = Callable[[int, str], Awaitable[bool]]
"""(number, coordinator) -> True if most voters promised the coordinator to change the voters by that number."""


async def _unasked(number: int, coordinator: str) -> bool:
    return True


class LeaseMemory:
    """The memory of this board."""

    def __init__(self, name: str, clock: Clock, stored: str, store: Callable[[str], None]) -> None:
        """`stored`: what was handed to `store` last, empty at first; it is called on a thread, and raises `OSError`.
        Raises `ValueError`."""
        self.name, self._clock, self._store, self._on_disk = name, clock, store, stored
        plain = json.loads(stored) if stored else {}
        if not isinstance(plain, dict):
            raise ValueError("expected voters and grants")
        self.voters = voters_untrusted(plain["voters"]) if "voters" in plain else Voters()
        """The voters; no names: this board has not met its fleet yet."""
        self.rival = Voters()
        """The newest voters of another fleet that this board has heard of; without names: it has heard of none."""
        self._remembers = plain.get("remembers") is True
        self.joined = plain.get("joined") is True
        """True since this board joined another fleet or was forgotten, until its guests are suspended."""
        self._blank_since = clock.monotonic()
        if not is_number(floor := plain.get("floor", 0)):
            raise ValueError("expected a number as floor")
        self.grants = Grants(grants_untrusted(plain.get("grants", {})), clock.monotonic(), floor)
        self._storing = asyncio.Lock()
        self.agrees: Callable[[Voters, str], bool] = lambda voters, teller: True
        """(voters, board that tells of them) -> True if what this board sees of the members explains the change."""
        self.confirms: Confirms = _unasked
        self._told: dict[str, Voters] = {}
        """Board -> the voters of this fleet that it told of last, where they are others."""

    @property
    def votes(self) -> bool:
        return self._remembers and self.name in self.voters.names

    @property
    def may_learn(self) -> bool:
        """Not before what a board that remembers nothing may have promised, when it did, is over."""
        over = self._clock.monotonic() - self._blank_since >= LEASE_S + VOTE_S
        return over or self._remembers or self.name not in self.voters.names

    def record(self, flow: str) -> Record:
        """The record that this board remembers; a majority may have a newer one."""
        return self.grants.record(flow)

    def begin(self, fleet: str) -> None:
        """Begins a fleet with this board."""
        self.voters, self._remembers = Voters(fleet, 1, 0, (self.name,)), True

    def hear(self, voters: Voters, teller: str, votes: bool = True) -> bool:
        """Takes in the voters that a board tells of; says whether they were taken over. One board is not believed:
        either a majority of the voters of before tells of them, or this board would make up a majority with those that
        do and sees itself why they changed. A board without a vote goes by what half of those say that told it and have
        one. Other voters are noted: a board that returns with an old record must not end a fleet that works."""
        before = set(self.voters.names)
        follows = not self.votes
        if not voters.names or (voters == self.voters and not follows) or (before and follows and not votes):
            self._told.pop(teller, None)
            return False
        if self.voters.names and voters.fleet != self.voters.fleet:
            self._note(voters)
            return False
        self._told[teller] = next((told for told in self._told.values() if told == voters), voters)
        if len(self._told) > max(LEAST_TELLERS, len(self.voters.names)):
            del self._told[next(iter(self._told))]
        if follows:
            told = sorted(one for one in self._told.values() if one.fleet == voters.fleet)
            likely = told[(len(told) - 1) // 2]
            changed, self.voters = likely != self.voters, likely
            return changed
        tellers = {name for name, told in self._told.items() if told == voters} & before - {self.name}
        enough = is_majority(tellers, before)
        agreed = is_majority({*tellers, self.name}, before) and self.agrees(voters, teller)
        if enough and steps(self.voters.number, voters.number) > NEAR_STEPS:  # this board alone believed a liar
            self.voters = Voters(voters.fleet, names=self.voters.names)
        if not voters.supersedes(self.voters):
            return False
        if enough or agreed:
            return self.adopt(voters)
        self._note(voters)
        return False

    def _note(self, rival: Voters) -> None:
        if rival.fleet != self.rival.fleet or rival.supersedes(self.rival):
            self.rival = rival

    def adopt(self, voters: Voters) -> bool:
        """Takes over newer voters of this board's fleet; says whether they were."""
        if self.voters.names and voters.fleet != self.voters.fleet:
            return False
        if not voters.supersedes(self.voters):
            return False
        if self.name in set(self.voters.names) - set(voters.names):  # perhaps by force, and no majority knew
            self.join(voters)
        self.voters = voters
        self._told.clear()
        return True

    def join(self, voters: Voters) -> None:
        """Becomes a board of others that did not know what it agreed on. Nothing of that is remembered: it would win by
        greater numbers over what they agreed on."""
        self.grants.clear()
        self._told.clear()
        self.voters, self.rival, self._remembers, self.joined = voters, Voters(), False, True
        self._blank_since = self._clock.monotonic()

    def learn(self, grants: Grants) -> None:
        """Takes over what a majority remembers; from now on this board votes, if it is one of the voters."""
        self.grants.learn(grants, self._clock.monotonic())
        self._remembers = True

    async def serve(self, sender: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Answers an agent, also this one: `{"verb", "flow", "number", "voters"}`. Raises `EdgertError`."""
        verb, flow, number = args.get("verb"), args.get("flow"), args.get("number")
        await self.merge(args, sender)
        answer: dict[str, Any] = {}
        if verb != "known":
            if not (isinstance(flow, str) and (flow == VOTERS or FLOW_NAME.fullmatch(flow)) and is_number(number)):
                raise EdgertError(f"expected a flow and a number, got {show(flow)}, {show(number)}")
            told = args.get("voters")
            if isinstance(told, list) and told[:1] == [self.voters.fleet]:  # else a coordinator of another fleet
                if verb == "voters":
                    answer = {"wrote": await self._take_voters(number, sender, args)}
                else:
                    answer = self._answer(verb, flow, number, sender, args)
        if verb in ("take", "write", "voters", "learn"):
            await self.keep()
        return {**answer, "voters": self.voters.plain(), "votes": self.votes}

    def _answer(self, verb: Any, flow: str, number: int, sender: str, args: Mapping[str, Any]) -> dict[str, Any]:
        now, grants = self._clock.monotonic(), self.grants
        try:
            match verb:
                case "learn" if not self.may_learn or not self._may_teach(sender, now):
                    return {}
                case "learn":
                    self.learn(Grants(grants_untrusted(args.get("grants")), now, number))
                    return {"learnt": True}
                case "copy":
                    return {"grants": grants.plain(), "floor": grants.floor}
                case "release":
                    grants.release(flow, number, sender)
                    return {}
                case "take" | "renew" | "read" | "write" | "promised" if not self.votes:
                    return {}
                case "promised":
                    return {"promised": grants.holds(VOTERS, number, str(args.get("to")), now)}
                case "take":
                    return grants.take(flow, number, sender, now)
                case "renew":
                    return {"renewed": grants.renew(flow, number, sender, now)}
                case "read":
                    return {"record": grants.record(flow).plain()}
                case "write":
                    return {"wrote": grants.write(flow, record_untrusted(args.get("record")), sender, now)}
        except ValueError as error:
            raise EdgertError(f"{verb} for {show(flow)}: {error}") from error
        raise EdgertError(
            f"expected take, renew, write, read, release, copy, learn, promised, voters or known, got {show(verb)}"
        )

    def _may_teach(self, sender: str, now: float) -> bool:
        """Only the board that changes the voters tells others what to remember, and it holds this board's promise where
        this one has a vote."""
        promised = self.grants.promised(VOTERS)
        return not self.votes or sender == self.name or self.grants.holds(VOTERS, promised, sender, now)

    async def _take_voters(self, number: int, sender: str, args: Mapping[str, Any]) -> bool:
        try:
            voters = voters_untrusted(args.get("record"))
        except ValueError as error:
            raise EdgertError(f"voters of the fleet: {error}") from error
        record, before = Record(number, voters.step, "runs", voters.names), self.voters
        if not self._remembers or voters.number != number or voters.fleet != before.fleet:
            return False
        if not voters.supersedes(before):
            return False
        if sender != self.name:
            if not self.agrees(voters, sender):
                log.warning("voters that %s tells of are not taken over: this board sees no reason for them", sender)
                return False
            removed = {
                name for name in {*before.names} - {*voters.names, sender} if mark(name) not in self.grants.refused
            }
            if (removed or self.name not in before.names) and not await self.confirms(number, sender):
                return False
            if self.voters not in (before, voters):  # an answer may have told of them, too
                return False
        if wrote := self.grants.write(VOTERS, record, sender, self._clock.monotonic()):
            self.adopt(voters)
        return wrote

    async def merge(self, told: Mapping[str, Any], teller: str) -> Voters:
        """Takes in the voters that another board told, and returns them. Raises `EdgertError`."""
        try:
            voters = voters_untrusted(told["voters"]) if "voters" in told else Voters()
        except ValueError as error:
            raise EdgertError(f"voters of the fleet: {error}") from error
        if teller != self.name and self.hear(voters, teller, told.get("votes") is not False):
            await self.keep()
        return voters

    async def keep(self) -> None:
        """Stores all, before anybody is answered. Raises `EdgertError`."""
        async with self._storing:
            grants = self.grants
            text = json.dumps(
                {"voters": self.voters.plain(), "remembers": self._remembers, "joined": self.joined,
                 "grants": grants.plain(), "floor": grants.floor}
            )  # fmt: skip
            if text == self._on_disk:
                return
            try:
                await asyncio.to_thread(self._store, text)
            except OSError as error:
                raise EdgertError(f"what this board granted cannot be stored: {error.strerror or error}") from error
            self._on_disk = text
