"""The memory of a board: who votes in its fleet, its own votes, and its records of flows. It answers those who ask.

A board with an empty disk (a new card) remembers nothing of what it promised, and does not vote until it has been told
what a majority of the others remembers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from agent.lease.grants import LEASE_S, Grants, Record, grants_untrusted, is_number, record_untrusted
from agent.lease.voters import Voters, voters_untrusted
from edgert.core.clock import Clock
from edgert.core.errors import EdgertError, show
from edgert.core.ids import FLOW_NAME

VOTERS: Final = "@voters"
"""In place of a flow: the lease under which voters are changed."""
VOTE_S: Final = 4.0
"""Longest wait for a board's vote, which it writes to its card first."""


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

    def adopt(self, voters: Voters) -> bool:
        """Takes over newer voters of this board's fleet; says whether they were. Those of another one are noted: a
        board that returns with an old record must not end a fleet that works."""
        if self.voters.names and voters.fleet != self.voters.fleet:
            if voters.names and (voters.fleet != self.rival.fleet or voters.supersedes(self.rival)):
                self.rival = voters
            return False
        if not voters.supersedes(self.voters):
            return False
        if self.name in set(self.voters.names) - set(voters.names):  # perhaps by force, and no majority knew
            self.join(voters)
        self.voters = voters
        return True

    def join(self, voters: Voters) -> None:
        """Becomes a board of others that did not know what it agreed on. Nothing of that is remembered: it would win by
        greater numbers over what they agreed on."""
        self.grants.clear()
        self.voters, self.rival, self._remembers, self.joined = voters, Voters(), False, True
        self._blank_since = self._clock.monotonic()

    def learn(self, grants: Grants) -> None:
        """Takes over what a majority remembers; from now on this board votes, if it is one of the voters."""
        self.grants.learn(grants, self._clock.monotonic())
        self._remembers = True

    async def serve(self, sender: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Answers an agent, also this one: `{"verb", "flow", "number", "voters"}`. Raises `EdgertError`."""
        verb, flow, number = args.get("verb"), args.get("flow"), args.get("number")
        await self.merge(args)
        answer: dict[str, Any] = {}
        if verb != "known":
            if not (isinstance(flow, str) and (flow == VOTERS or FLOW_NAME.fullmatch(flow)) and is_number(number)):
                raise EdgertError(f"expected a flow and a number, got {show(flow)}, {show(number)}")
            told = args.get("voters")
            if isinstance(told, list) and told[:1] == [self.voters.fleet]:  # else a coordinator of another fleet
                answer = self._answer(verb, flow, number, sender, args)
        if verb in ("take", "write", "voters", "learn"):
            await self.keep()
        return {**answer, "voters": self.voters.plain(), "votes": self.votes}

    def _answer(self, verb: Any, flow: str, number: int, sender: str, args: Mapping[str, Any]) -> dict[str, Any]:
        now, grants = self._clock.monotonic(), self.grants
        try:
            match verb:
                case "learn" if not self.may_learn:
                    return {}
                case "learn":
                    self.learn(Grants(grants_untrusted(args.get("grants")), now, number))
                    return {"learnt": True}
                case "voters" if self._remembers:
                    return {"wrote": self._take_voters(number, sender, args)}
                case "copy":
                    return {"grants": grants.plain(), "floor": grants.floor}
                case "release":
                    grants.release(flow, number, sender)
                    return {}
                case "take" | "renew" | "read" | "write" | "voters" if not self.votes:
                    return {}
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
        raise EdgertError(f"expected take, renew, write, read, release, copy, learn, voters or known, got {show(verb)}")

    def _take_voters(self, number: int, sender: str, args: Mapping[str, Any]) -> bool:
        voters = voters_untrusted(args.get("record"))
        record = Record(number, voters.step, "runs", voters.names)
        if voters.number != number or voters.fleet != self.voters.fleet or not voters.supersedes(self.voters):
            return False
        if wrote := self.grants.write(VOTERS, record, sender, self._clock.monotonic()):
            self.adopt(voters)
        return wrote

    async def merge(self, told: Mapping[str, Any]) -> Voters:
        """Takes in the voters that another board told, and returns them. Raises `EdgertError`."""
        try:
            voters = voters_untrusted(told["voters"]) if "voters" in told else Voters()
        except ValueError as error:
            raise EdgertError(f"voters of the fleet: {error}") from error
        if self.adopt(voters):
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
