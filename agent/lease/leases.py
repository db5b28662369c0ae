"""The leases of this board's agent: it asks the others for one, keeps it while it changes a flow, and grants them some.

Who asks needs a majority of the boards that it or any board that answers knows (`agent.lease.known`). So of a fleet
that is split at most one side deploys, changes or removes flows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from random import Random
from typing import Any, Final

from agent.lease.fences import next_fence
from agent.lease.grants import LEASE_S, Grants, Record, grants_untrusted, is_number, record_untrusted
from agent.lease.known import Known, Standing, is_majority, lately_s, standings_untrusted
from agent.membership.members import State
from agent.membership.roster import Roster
from edgert.core.clock import Clock
from edgert.core.errors import EdgertError, show
from edgert.core.ids import FLOW_NAME

log = logging.getLogger(__name__)
Request = Callable[[str, str, Mapping[str, Any], float], Awaitable[Any]]
"""(gateway, verb, arguments, time-out in seconds) -> the answer of that board's agent."""
VERB: Final = "fleet.lease"
VOTE_S: Final = 4.0
"""Longest wait for a board's vote, which it writes to its card first."""
PATIENCE_S: Final = 2 * LEASE_S
"""So long a coordinator waits for the lease that another one has: that one ends, or dies and loses it."""
PAUSE_S: Final = (0.2, 1.0)
"""Between two tries, drawn: two that hinder each other do not again."""
DEAD_S: Final = 180.0


def dead_s(boards: int) -> float:
    """So long a board must be held for dead before it can be forgotten, or not be heard of by an agent that has started
    since. One that lives and is cut off has noticed it by then, though its agent began anew meanwhile, and has stopped
    what it runs for others (`agent.fleet.presence`), with a minute to spare."""
    return max(DEAD_S, 60.0 + 2 * lately_s(boards))


class LeaseError(EdgertError):
    """No lease: a majority does not answer, or another coordinator has it."""


class Lease:
    """Lease of one flow, held by this agent."""

    def __init__(
        self, flow: str, number: int, record: Record, age_s: float | None, until: float, leases: Leases
    ) -> None:
        self.flow, self.number, self.record, self._leases = flow, number, record, leases
        self.age_s = age_s
        """Since a coordinator wrote of the flow last, as far as a board remembers it."""
        self.until = until
        """Monotonic seconds; renewed by a majority."""
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
    """The asking side, and this board's own vote."""

    def __init__(
        self, name: str, roster: Roster, request: Request, clock: Clock, random: Random, stored: str,
        store: Callable[[str], None], refused: Callable[[], Collection[str]] = frozenset,
    ) -> None:  # fmt: skip
        """`stored`: what was handed to `store` last, empty at first; it is called on a thread, and raises `OSError`.
        `refused`: boards that are no members by the list of revoked certificates. Raises `ValueError`."""
        self.name, self._roster, self._request, self._clock, self._random = name, roster, request, clock, random
        self._store, self._refused = store, refused
        plain = json.loads(stored) if stored else {"known": {}, "grants": {}}
        if not isinstance(plain, dict):
            raise ValueError("expected boards and grants")
        self._known = Known(name, standings_untrusted(plain.get("known")))
        if not is_number(floor := plain.get("floor", 0)):
            raise ValueError("expected a number as floor")
        self._grants = Grants(grants_untrusted(plain.get("grants")), clock.monotonic(), floor)
        self._steady_since = clock.monotonic()
        """When this agent began, or gained or lost its majority last. Boards that it does not hear of since then are no
        part of that majority."""
        self._had_majority = False
        self._on_disk = stored
        self._storing = asyncio.Lock()

    # -- the boards of the fleet

    @property
    def members(self) -> frozenset[str]:
        """The boards that count, as this one knows them."""
        return self._known.members - set(self._refused())

    @property
    def forgotten(self) -> bool:
        """Is this board, which runs, counted no more? An agent that does not hear of it forgot it."""
        own, standing = self._roster.own, self._known.standing(self.name)
        return own.state is State.ALIVE and standing.gone and standing.epoch == own.version.epoch

    def reached(self) -> list[str]:
        """Those that the membership holds for present."""
        return sorted(member.name for member in self._roster if member.present and member.name in self.members)

    def has_majority(self) -> bool:
        return is_majority(self.reached(), self.members)

    async def look(self) -> None:
        """Remembers boards that the membership shows. To be called every few seconds. Raises `EdgertError`."""
        before = self.members
        for member in self._roster:
            version = member.version
            self._known.saw(
                member.name, Standing(version.epoch, version.incarnation, version.state is State.LEFT)
            )  # not kept for each incarnation: after a restart the membership tells it anew
        if self.has_majority() != self._had_majority:
            self._had_majority, self._steady_since = not self._had_majority, self._clock.monotonic()
        if self.members != before or not self._on_disk:
            await self._keep()

    async def compare(self) -> None:
        """Exchanges with another board, at random, what is known of the fleet's boards."""
        others = [name for name in self.reached() if name != self.name]
        if others:
            with contextlib.suppress(EdgertError):
                await self._tell(self._random.choice(others))

    async def _tell(self, board: str) -> None:
        answer = await self._request(board, VERB, {"verb": "known", "known": self._known.plain()}, VOTE_S)
        await self._merge(_answer(answer))

    async def forget(self, board: str) -> list[str]:
        """The board counts no more. Returns the boards that were told. Raises `EdgertError` where it may live."""
        member = self._roster.get(board)
        if board == self.name or board not in self.members:
            raise EdgertError(f"expected another board of the fleet, one of {', '.join(sorted(self.members))},"
                              f" got {show(board)}")  # fmt: skip
        if member is not None and member.present:
            raise EdgertError(f"{board} is {member.state.name.lower()}: run `edgert fleet leave` there")
        least_s = dead_s(len(self.members))
        since, held = (member.since, "held for dead") if member else (self._steady_since, "not heard of here")
        if (gone_for_s := self._clock.monotonic() - since) < least_s:
            raise EdgertError(
                f"{board} is {held} for {gone_for_s:.0f} s only: try again after {least_s:.0f} s. So long it"
                " takes at most until a board that lives and is cut off has stopped what it runs for others"
            )
        others = [name for name in self.reached() if name != self.name]
        await asyncio.gather(*map(self._tell, others), return_exceptions=True)
        self._known.forget(board)
        await self._keep()
        told = await asyncio.gather(*map(self._tell, others), return_exceptions=True)
        return [name for name, failed in zip(others, told, strict=True) if failed is None]

    async def _merge(self, answer: Mapping[str, Any]) -> None:
        before = self.members
        try:
            self._known.merge(standings_untrusted(answer.get("known", {})))
        except ValueError as error:
            raise EdgertError(f"boards of the fleet: {error}") from error
        if self.members != before:
            await self._keep()

    # -- as a coordinator

    @contextlib.asynccontextmanager
    async def held(self, flow: str) -> AsyncIterator[Lease]:
        """Holds the lease of a flow. Raises `LeaseError` where no majority grants it."""
        lease = await self._taken(flow)
        renewing = asyncio.create_task(self._renew(lease))
        try:
            yield lease
        finally:
            renewing.cancel()
            await self._ask("release", flow, lease.number)

    async def _taken(self, flow: str) -> Lease:
        began, greatest = self._clock.monotonic(), self._grants.promised(flow)
        while True:
            number, asked_at = next_fence([greatest], self.name), self._clock.monotonic()
            answers = await self._ask("take", flow, number)
            granted = {name: answer for name, answer in answers.items() if answer.get("granted") is True}
            if is_majority(granted, self.members):
                ages = [age for answer in granted.values() if isinstance(age := answer.get("age_s"), int | float)]
                record = _newest(flow, granted.values())
                return Lease(flow, number, record, min(ages, default=None), asked_at + LEASE_S, self)
            await self._ask("release", flow, number)
            over = self._clock.monotonic() - began >= PATIENCE_S
            if over or not self.has_majority():  # else the network, or a card, was slow for a moment
                self._check_majority(flow, answers)
            if over:
                holder = next((answer["holder"] for answer in answers.values() if answer.get("holder")), "another")
                raise LeaseError(f"flow {flow} is being changed by the coordinator {show(holder)}; try again")
            told = (answer.get("promised") for answer in answers.values())
            greatest = max([number, *(n for n in told if type(n) is int)])
            await asyncio.sleep(self._random.uniform(*PAUSE_S))

    async def write(self, lease: Lease, record: Record) -> None:
        """Has a majority remember it. Raises `LeaseError`."""
        flow = lease.flow
        if self._clock.monotonic() >= lease.until:
            raise LeaseError(f"flow {flow}: the lease of {self.name} is over, as no majority renewed it; try again")
        answers = await self._ask("write", flow, record.number, {"record": record.plain()})
        wrote = [name for name, answer in answers.items() if answer.get("wrote") is True]
        if not is_majority(wrote, self.members):
            self._check_majority(flow, answers)
            raise LeaseError(f"flow {flow}: another coordinator changes it now; try again")

    async def read(self, flow: str) -> Record:
        """Returns the record of a flow that a majority remembers. Raises `LeaseError`."""
        answers = await self._ask("read", flow, 0)
        self._check_majority(flow, answers)
        return _newest(flow, answers.values())

    async def _renew(self, lease: Lease) -> None:
        while True:
            await asyncio.sleep(LEASE_S / 3)
            asked_at = self._clock.monotonic()
            answers = await self._ask("renew", lease.flow, lease.number)
            renewed = [name for name, answer in answers.items() if answer.get("renewed") is True]
            refused = [name for name, answer in answers.items() if answer.get("renewed") is False]
            if is_majority(renewed, self.members):
                lease.until = asked_at + LEASE_S
            elif not is_majority(self.members - set(refused), self.members):
                lease.until = float("-inf")
                return

    def _check_majority(self, flow: str, answered: Collection[str]) -> None:
        members = self.members
        if is_majority(answered, members):
            return
        lacking = sorted(members - set(answered))
        raise LeaseError(
            f"flow {flow}: {self.name} reaches {len(members) - len(lacking)} of the fleet's {len(members)} boards, and"
            f" a change needs more than half of them (or half, with {min(members)}). Not reached:"
            f" {', '.join(lacking)}. Start them or mend the network; where one is gone for good:"
            f" edgert fleet forget BOARD"
        )

    async def _ask(
        self, verb: str, flow: str, number: int, more: Mapping[str, Any] | None = None
    ) -> dict[str, Mapping[str, Any]]:
        """The answers of all boards that answer, this one's included. What they know of boards is taken in."""
        args = {"verb": verb, "flow": flow, "number": number, "known": self._known.plain(), **(more or {})}

        async def one(board: str) -> Mapping[str, Any]:
            if board == self.name:
                return await self.serve(board, args)
            return _answer(await self._request(board, VERB, args, VOTE_S))

        names = sorted({self.name, *self.reached()})
        answers = await asyncio.gather(*map(one, names), return_exceptions=True)
        found = {name: answer for name, answer in zip(names, answers, strict=True) if isinstance(answer, Mapping)}
        for answer in found.values():
            with contextlib.suppress(EdgertError):
                await self._merge(answer)
        return found

    # -- as a voter

    async def serve(self, sender: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Another agent, or this one, asks for this board's vote: `{"verb", "flow", "number", "known"}`."""
        verb, flow, number = args.get("verb"), args.get("flow"), args.get("number")
        await self._merge(args)
        answer: dict[str, Any] = {}
        if verb != "known":
            if not (isinstance(flow, str) and FLOW_NAME.fullmatch(flow) and is_number(number)):
                raise EdgertError(f"expected a flow and a number, got {show(flow)}, {show(number)}")
            answer = self._vote(verb, flow, number, sender, args)
        if verb in ("take", "write"):
            await self._keep()
        return {**answer, "known": self._known.plain()}

    def _vote(self, verb: Any, flow: str, number: int, sender: str, args: Mapping[str, Any]) -> dict[str, Any]:
        now, grants = self._clock.monotonic(), self._grants
        match verb:
            case "take":
                return grants.take(flow, number, sender, now)
            case "renew":
                return {"renewed": grants.renew(flow, number, sender, now)}
            case "read":
                return {"record": grants.record(flow).plain()}
            case "release":
                grants.release(flow, number, sender)
                return {}
            case "write":
                try:
                    return {"wrote": grants.write(flow, record_untrusted(args.get("record")), sender, now)}
                except ValueError as error:
                    raise EdgertError(f"record of flow {show(flow)}: {error}") from error
        raise EdgertError(f"expected take, renew, write, read, release or known, got {show(verb)}")

    def record(self, flow: str) -> Record:
        """The record that this board remembers; a majority may have a newer one."""
        return self._grants.record(flow)

    async def _keep(self) -> None:
        """Stores all, before anybody is answered. Raises `EdgertError`."""
        async with self._storing:
            grants = self._grants
            text = json.dumps({"known": self._known.plain(), "grants": grants.plain(), "floor": grants.floor})
            if text == self._on_disk:
                return
            try:
                await asyncio.to_thread(self._store, text)
            except OSError as error:
                raise EdgertError(f"what this board granted cannot be stored: {error.strerror or error}") from error
            self._on_disk = text


def _answer(answer: Any) -> Mapping[str, Any]:
    if not isinstance(answer, Mapping):
        raise EdgertError(f"expected an answer to {VERB}, got {show(answer)}")
    return answer


def _newest(flow: str, answers: Collection[Mapping[str, Any]]) -> Record:
    """The greatest record of those that boards told."""
    try:
        return max(record_untrusted(answer.get("record")) for answer in answers)
    except ValueError as error:
        raise LeaseError(f"flow {flow}: a board remembers what is nothing: {error}") from error
