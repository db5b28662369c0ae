"""The memory of a board: who votes in its fleet, its own votes, and its records of flows. It answers those who ask.

A board with an empty disk (a new card) remembers nothing of what it promised, and does not vote until it has been told
what a majority of the others remembers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from agent.lease.grants import Grants, Record, grants_untrusted, is_number, record_untrusted
from agent.lease.voters import Voters, voters_untrusted
from edgert.core.clock import Clock
from edgert.core.errors import EdgertError, show
from edgert.core.ids import FLOW_NAME

VOTERS: Final = "@voters"
"""In place of a flow: the lease under which voters are changed."""


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
        self._remembers = plain.get("remembers") is True
        if not is_number(floor := plain.get("floor", 0)):
            raise ValueError("expected a number as floor")
        self.grants = Grants(grants_untrusted(plain.get("grants", {})), clock.monotonic(), floor)
        self._storing = asyncio.Lock()

    @property
    def votes(self) -> bool:
        return self._remembers and self.name in self.voters.names

    def record(self, flow: str) -> Record:
        """The record that this board remembers; a majority may have a newer one."""
        return self.grants.record(flow)

    def begin(self, fleet: str) -> None:
        """Begins a fleet with this board."""
        self.voters, self._remembers = Voters(fleet, 1, 0, (self.name,)), True

    def adopt(self, voters: Voters) -> bool:
        """Takes over newer voters; says whether they were. Of a fleet that ends in a greater one nothing is remembered:
        its records would win by their numbers over those of the greater one."""
        if not voters.supersedes(self.voters):
            return False
        if self.voters.names and voters.fleet != self.voters.fleet:
            self.grants.clear()
            self._remembers = False
        self.voters = voters
        return True

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

    async def merge(self, told: Mapping[str, Any]) -> None:
        """Takes in the voters that another board told. Raises `EdgertError`."""
        try:
            newer = "voters" in told and self.adopt(voters_untrusted(told["voters"]))
        except ValueError as error:
            raise EdgertError(f"voters of the fleet: {error}") from error
        if newer:
            await self.keep()

    async def keep(self) -> None:
        """Stores all, before anybody is answered. Raises `EdgertError`."""
        async with self._storing:
            grants = self.grants
            text = json.dumps(
                {"voters": self.voters.plain(), "remembers": self._remembers, "grants": grants.plain(),
                 "floor": grants.floor}
            )  # fmt: skip
            if text == self._on_disk:
                return
            try:
                await asyncio.to_thread(self._store, text)
            except OSError as error:
                raise EdgertError(f"what this board granted cannot be stored: {error.strerror or error}") from error
            self._on_disk = text
