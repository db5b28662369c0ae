"""The leases of this board's agent: it asks the others for one, and keeps it while it changes a flow.

Who asks needs a majority of the boards that vote (`agent.lease.voters`), by the newest record of them that it or any
board that answers has. So of a fleet that is split at most one side deploys, changes or removes flows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from random import Random
from typing import Any, Final

from agent.lease.fences import next_fence
from agent.lease.grants import LEASE_S, Record, is_number, record_untrusted
from agent.lease.memory import VOTE_S, VOTERS, LeaseMemory
from agent.lease.voters import Voters, dead_s, is_majority
from agent.membership.roster import Roster
from edgert.core.clock import Clock
from edgert.core.errors import EdgertError, show

log = logging.getLogger(__name__)
AskBoard = Callable[[str, str, Mapping[str, Any], float], Awaitable[Any]]
"""(gateway, verb, arguments, time-out in seconds) -> the answer of that board's agent."""
VERB: Final = "fleet.lease"
PATIENCE_S: Final = 2 * LEASE_S
"""Longest wait for a lease that another coordinator has: that one ends, or dies and loses it."""
PAUSE_S: Final = (0.2, 1.0)
"""Bounds of the wait between two tries. It is drawn, so that two that hinder each other do not again."""
SLOWEST_S: Final = 0.5
"""Longest wait for the next answer, where a majority has answered."""
FIRST: Final = asyncio.FIRST_COMPLETED
FORCE: Final = (
    "edgert fleet forget BOARD --force; only people know whether it is gone: with a board that lives and is cut off a"
    " flow could run twice, or be removed when it is back"
)


class LeaseError(EdgertError):
    """No lease: a majority does not answer, or another coordinator has it."""


class Lease:
    """Lease of one flow, held by this agent."""

    def __init__(
        self, flow: str, number: int, record: Record, age_s: float | None, until: float, leases: Leases
    ) -> None:
        self.flow, self.number, self.record, self._leases = flow, number, record, leases
        self.age_s = age_s
        """Time since a coordinator wrote of the flow last, as far as a board remembers it."""
        self.until = until
        """Monotonic seconds; renewed by a majority."""
        self.fleet = leases.memory.voters.fleet
        self._step = 0

    async def write(self, state: str, boards: Iterable[str]) -> None:
        """A majority remembers this of the flow from now on. Raises `LeaseError`, also where the lease is lost."""
        self._step += 1
        record = Record(self.number, self._step, state, tuple(sorted(set(boards))))
        await self._leases.write(self, record)
        self.record = record

    async def note(self, state: str, boards: Iterable[str]) -> None:
        """Writes as `write`, after the deed, which stands in any case: where writing fails, the boards remember more
        parts than there are, until the flow's coordinator looks again."""
        try:
            await self.write(state, boards)
        except EdgertError as error:
            log.warning("%s", error)


class Leases:
    """Asks the voters for leases, for this board's agent."""

    def __init__(self, memory: LeaseMemory, roster: Roster, request: AskBoard, clock: Clock, random: Random) -> None:
        self.name, self.memory, self._roster = memory.name, memory, roster
        self._request, self._clock, self._random = request, clock, random
        memory.confirms = self._confirmed
        self.blank: dict[str, str] = {}
        """Boards that had no vote in this fleet when they were asked last, and why."""
        self.disputing: set[str] = set()
        """Boards of this fleet that named other voters when they were asked last."""
        self._began = clock.monotonic()

    @property
    def members(self) -> frozenset[str]:
        """The boards that vote, as this one knows them."""
        return frozenset(self.memory.voters.names)

    def reached(self) -> list[str]:
        """The voters that the membership holds for present."""
        return sorted(member.name for member in self._roster if member.present and member.name in self.members)

    def long_gone(self, boards: Iterable[str]) -> list[str]:
        """Returns those of these voters that people can forget: each was held for dead, or not heard of since this
        agent began, for `dead_s`. A board that restarts is no board to forget."""
        latest = self._clock.monotonic() - dead_s(len(self.members))
        known = {name: self._roster.get(name) for name in self.members.intersection(boards)}
        return sorted(
            name for name, member in known.items()
            if not (member and member.present) and (member.since if member else self._began) <= latest
        )  # fmt: skip

    def has_majority(self) -> bool:
        """True if a majority seems to be present, and to vote; only the answers tell."""
        return is_majority(set(self.reached()) - self.blank.keys(), self.members)

    def agree(self) -> bool:
        """True unless so many of the boards that are there go by other voters that the rest is no majority."""
        return is_majority(set(self.reached()) - self.disputing, self.members)

    @contextlib.asynccontextmanager
    async def held(self, flow: str) -> AsyncIterator[Lease]:
        """Holds the lease of a flow. Raises `LeaseError` where no majority grants it."""
        lease = await self._taken(flow)
        renewing = asyncio.create_task(self._renew(lease))
        try:
            yield lease
        finally:
            renewing.cancel()
            await self.ask("release", flow, lease.number)

    async def _taken(self, flow: str) -> Lease:
        began, greatest = self._clock.monotonic(), self.memory.grants.promised(flow)
        while True:
            if flow == VOTERS:  # others may have told of newer ones, by a number that was not promised here
                greatest = max(greatest, self.memory.voters.number)
            number, asked_at = next_fence([greatest], self.name), self._clock.monotonic()
            answers = await self.ask("take", flow, number)
            granted = {name: answer for name, answer in answers.items() if answer.get("granted") is True}
            if is_majority(granted, self.members):
                ages = [age for answer in granted.values() if isinstance(age := answer.get("age_s"), int | float)]
                record = _newest(flow, granted.values())
                return Lease(flow, number, record, min(ages, default=None), asked_at + LEASE_S, self)
            await self.ask("release", flow, number)
            over = self._clock.monotonic() - began >= PATIENCE_S
            if over or (self.members and not self.has_majority()):  # else a network, or a card, was slow for a moment
                self.check_majority(flow, answers)
            if over:
                holder = next((answer["holder"] for answer in answers.values() if answer.get("holder")), "another")
                raise LeaseError(f"{_what(flow)}: being changed by the coordinator {show(holder)}; try again")
            told = sorted(n for answer in answers.values() if is_number(n := answer.get("promised")))
            most = told[: len(self.members) // 2 + 1]  # a greater number need not be promised to others than these
            greatest = max([number, *most[-1:]])
            await asyncio.sleep(self._random.uniform(*PAUSE_S))

    async def write(self, lease: Lease, record: Record) -> None:
        """Has a majority remember it. Raises `LeaseError`."""
        await self.written(lease, "write", {"record": record.plain()})

    async def written(
        self, lease: Lease, verb: str, more: Mapping[str, Any], names: Collection[str] | None = None
    ) -> None:
        """Has a majority, of `names` if given, store something by the lease's number. Raises `LeaseError`."""
        if self._clock.monotonic() >= lease.until:
            raise LeaseError(
                f"{_what(lease.flow)}: the lease of {self.name} is over, as no majority renewed it; try again"
            )
        if lease.fleet != self.memory.voters.fleet:
            raise LeaseError(f"{_what(lease.flow)}: this board has become one of another fleet; try again")
        answers = await self.ask(verb, lease.flow, lease.number, more, names or ())
        wrote = [name for name, answer in answers.items() if answer.get("wrote") is True]
        if not is_majority(wrote, self.members if names is None else names):
            self.check_majority(lease.flow, answers)
            if lease.flow == VOTERS and not self.agree():
                others = ", ".join(sorted(self.disputing & self.members))
                raise LeaseError(
                    f"the fleet's voters: other boards count for {others} than for {self.name}: try again in a minute;"
                    f" if it stays so, say on each of them which are gone for good: {FORCE}"
                )
            raise LeaseError(f"{_what(lease.flow)}: another coordinator changes it now; try again")

    async def read(self, flow: str) -> Record:
        """Returns the record of a flow that a majority remembers. Raises `LeaseError`."""
        answers = await self.ask("read", flow, 0)
        self.check_majority(flow, answers)
        return _newest(flow, [answer for answer in answers.values() if "record" in answer])

    async def _renew(self, lease: Lease) -> None:
        while True:
            await asyncio.sleep(LEASE_S / 3)
            asked_at = self._clock.monotonic()
            answers = await self.ask("renew", lease.flow, lease.number)
            renewed = [name for name, answer in answers.items() if answer.get("renewed") is True]
            refused = [name for name, answer in answers.items() if answer.get("renewed") is False]
            if is_majority(renewed, self.members):
                lease.until = asked_at + LEASE_S
            elif not is_majority(self.members - set(refused), self.members):
                lease.until = float("-inf")
                return

    async def _confirmed(self, number: int, coordinator: str) -> bool:
        """True if a majority has promised a coordinator to change the voters by a number."""
        answers = await self.ask("promised", VOTERS, number, {"to": coordinator})
        return is_majority([name for name, told in answers.items() if told.get("promised") is True], self.members)

    def check_majority(self, flow: str, answers: Mapping[str, Mapping[str, Any]]) -> None:
        """Raises `LeaseError` where too few of those that answered have a vote."""
        members, voting = self.members, {name for name, answer in answers.items() if answer.get("votes") is True}
        if is_majority(voting, members):
            return
        if not members:
            raise LeaseError(
                f"{_what(flow)}: {self.name} has not met its fleet yet: start the boards of its agent.seeds, or correct"
                " these"
            )
        lacking = sorted(members - voting)
        silent = ", ".join(name for name in lacking if name not in self.blank)
        blank = ", ".join(f"{name} ({self.blank[name]})" for name in lacking if name in self.blank)
        gone = sorted({*self.long_gone(lacking), *self.blank.keys() & set(lacking)})
        raise LeaseError(
            f"{_what(flow)}: {self.name} reaches {len(members) - len(lacking)} of the fleet's {len(members)} boards,"
            " and a change needs more than half of them."
            + (f" Not reached: {silent}. Start them or mend the network." if silent else "")
            + (f" Without a vote: {blank}." if blank else "")
            + (f" Where {', '.join(gone)} is gone for good, or has a new disk: {FORCE}" if gone else "")
        )

    async def ask(
        self, verb: str, flow: str, number: int, more: Mapping[str, Any] | None = None, also: Collection[str] = ()
    ) -> dict[str, Mapping[str, Any]]:
        """The answers of all voters, and boards `also`, that answer; this board's included. The voters that they know
        are taken in. About voters it waits for the slowest boards no longer than `SLOWEST_S`."""
        known = {"voters": self.memory.voters.plain(), "votes": self.memory.votes}
        args = {"verb": verb, "flow": flow, "number": number, **known, **(more or {})}

        async def one(board: str) -> Mapping[str, Any]:
            if board == self.name:
                return await self.memory.serve(board, args)
            return _answer(await self._request(board, VERB, args, VOTE_S))

        names = sorted({self.name, *self.reached(), *also})
        asked = {asyncio.ensure_future(one(name)): name for name in names}
        answered, waiting = set[str](), set(asked)
        try:
            while waiting:
                hurry = flow == VOTERS and is_majority(answered, self.members)
                done, waiting = await asyncio.wait(waiting, timeout=SLOWEST_S if hurry else None, return_when=FIRST)
                if not done:
                    break
                answered |= {asked[task] for task in done if not task.exception()}
        finally:
            for task in waiting:
                task.cancel()
        found = {name: task.result() for task, name in asked.items() if name in answered}
        return {name: await self._voting(name, answer) for name, answer in found.items()}

    async def _voting(self, name: str, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        """Takes in the voters of an answer. A vote in another fleet is none in this one."""
        told = Voters()
        with contextlib.suppress(EdgertError):
            told = await self.memory.merge(answer, name)
        self.blank.pop(name, None)
        (self.disputing.discard if name == self.name or told in (Voters(), self.memory.voters) else self.disputing.add)(
            name
        )
        if told.fleet != self.memory.voters.fleet:
            self.blank[name] = "it is of another fleet"
        elif answer.get("votes") is not True:
            self.blank[name] = "it remembers nothing yet, as with a new disk"
        return {**answer, "votes": name not in self.blank}

    async def tell(self, board: str) -> Voters:
        """Exchanges with a board what is known of the voters. Returns those of the fleet in which it votes; no names:
        in none. Raises `EdgertError`."""
        asked = {"verb": "known", "voters": self.memory.voters.plain(), "votes": self.memory.votes}
        answer = _answer(await self._request(board, VERB, asked, VOTE_S))
        told = await self.memory.merge(answer, board)
        await self._voting(board, answer)
        return told if answer.get("votes") is True else Voters()


def _what(flow: str) -> str:
    return "the fleet's voters" if flow == VOTERS else f"flow {flow}"


def _answer(answer: Any) -> Mapping[str, Any]:
    if not isinstance(answer, Mapping):
        raise EdgertError(f"expected an answer to {VERB}, got {show(answer)}")
    return answer


def _newest(flow: str, answers: Collection[Mapping[str, Any]]) -> Record:
    """The greatest record of those that boards told."""
    try:
        return max(record_untrusted(answer.get("record")) for answer in answers)
    except ValueError as error:
        raise LeaseError(f"flow {flow}: what a board remembers is no record: {error}") from error
