"""Names that two agents use: the member that answers keeps its name, and the other one is refused and told so.

A claim that gives a present member another address may be of a board that has moved, of a second board with the same
name, or of a thief. So it waits while the member is pinged at its known address. A member that answers stays; one that
does not answer any more is replaced. Others are not asked to ping it: they may know another agent by its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agent.membership.events import Datagram
from agent.membership.members import Member, Peer, Version
from agent.membership.messages import Claim, NameHeld, body, encode
from agent.membership.roster import Roster

AGAIN_S: Final = 10.0
"""Time after a refusal in which the member is not probed for another claim."""
PINGS: Final = 4
"""The number of pings that a member does not answer before it is replaced."""
KEPT_S: Final = 60.0
"""A refused claim that was not heard again for so long is forgotten."""
TELL_AGAIN_S: Final = 1.0
"""A start that is refused is told so at most once in this time."""
MAX_TOLD: Final = 1_024
"""Refused starts of which is remembered when they were told."""


@dataclass(slots=True)
class Contest:
    """The newest claim to a member's name from another address. Times are monotonic seconds."""

    claim: Claim
    heard: float
    next_ping: float
    pings: int = 0
    """The number of pings so far."""
    refused: float | None = None
    """When the member answered; None while its answer is waited for."""


class Contests:
    """At most one contest per member."""

    def __init__(self) -> None:
        self._contests: dict[str, Contest] = {}

    def enter(self, member: Member, claim: Claim, now: float) -> bool:
        """Notes a newer claim from another address. Returns True if the member will be pinged for it."""
        held = self._contests.get(member.name)
        if held is not None and _version(claim) >= _version(held.claim):
            held.claim, held.heard = claim, now
        if held is not None and (held.refused is None or now - held.refused < AGAIN_S):
            return False
        self._contests[member.name] = Contest(held.claim if held else claim, now, next_ping=now)
        return True

    def due(self, now: float, interval_s: float) -> tuple[list[str], list[str]]:
        """Returns (names of members to ping now, names of members that have answered no ping)."""
        waiting = [(n, c) for n, c in self._contests.items() if c.refused is None and c.next_ping <= now]
        over = [name for name, contest in waiting if contest.pings >= PINGS]
        to_ping = [(name, contest) for name, contest in waiting if contest.pings < PINGS]
        for _, contest in to_ping:
            contest.pings += 1
            contest.next_ping = now + interval_s
        return [name for name, _ in to_ping], over

    def put_off(self, seconds: float) -> None:
        """Do not count time in which this agent did not run."""
        for contest in self._contests.values():
            contest.next_ping += seconds

    def next_deadline(self) -> float:
        """The earliest monotonic time at which `due` has something; infinite without any."""
        return min((c.next_ping for c in self._contests.values() if c.refused is None), default=float("inf"))

    def answered(self, member: Member, now: float) -> Claim | None:
        """The member answered a ping. Returns the claim that is refused by this, None where none waited."""
        contest = self._contests.get(member.name)
        if contest is None or contest.refused is not None:
            return None
        contest.refused = now
        return contest.claim

    def refuses(self, sender: Peer, member: Member) -> bool:
        """True if `sender` is another start of the board than the member, and was refused."""
        contest = self._contests.get(sender.name)
        other = sender.epoch != member.version.epoch
        return contest is not None and contest.refused is not None and other

    def end(self, name: str) -> Claim | None:
        """Takes out the claim to a name whose member does not answer any more."""
        contest = self._contests.pop(name, None)
        return contest.claim if contest is not None else None

    def expire(self, now: float) -> None:
        """Forgets refused claims that are not repeated."""
        for name in [n for n, c in self._contests.items() if c.refused is not None and now - c.heard > KEPT_S]:
            del self._contests[name]


class NameRefusals:
    """Finds starts of boards that are refused, and tells them who holds their name."""

    def __init__(self, roster: Roster, contests: Contests) -> None:
        self._roster, self._contests = roster, contests
        self._outputs: list[Datagram] = []
        self._told: dict[Peer, float] = {}
        """Refused starts -> monotonic time at which they were told so."""

    def of(self, sender: Peer, newest: int) -> NameHeld | None:
        """The start that holds the name of `sender`; None where `sender` is not refused. `newest`: the epoch of a later
        start of the board that is known from its packets, 0 without."""
        member = self._roster.get(sender.name)
        if member is None or member is self._roster.own or member.version.epoch < newest:
            return NameHeld(sender.name, newest, *sender.address) if newest > sender.epoch else None
        older = sender.epoch < member.version.epoch
        if older or (member.present and self._contests.refuses(sender, member)):
            return NameHeld(sender.name, member.version.epoch, *member.address)
        return None

    def answer(self, sender: Peer, newest: int) -> bytes:
        """The body of the answer to `sender`, without messages where it is not refused."""
        held = self.of(sender, newest)
        return body([encode(held)] if held is not None else [])

    def tell(self, sender: Peer, now: float, newest: int = 0) -> None:
        """Tells `sender` why it is refused, if it is, and was not told just now."""
        if now - self._told.get(sender, float("-inf")) < TELL_AGAIN_S or self.of(sender, newest) is None:
            return
        if len(self._told) >= MAX_TOLD:
            self._told.clear()
        self._told[sender] = now
        self._outputs.append(Datagram(sender, self.answer(sender, newest)))

    def take_outputs(self) -> list[Datagram]:
        """The packets since the last call."""
        outputs, self._outputs = self._outputs, []
        return outputs


def _version(claim: Claim) -> Version:
    return Version(claim.epoch, claim.incarnation, claim.state)
