"""The rules of claims: which one holds, when a suspicion becomes a death.

A claim replaces what is held if its version (epoch, incarnation, state) is greater. So the outcome does not depend on
the order in which claims arrive, nor on repetitions. Only a claim that gives a present member another address waits:
see `contests`.
"""

from __future__ import annotations

from agent.membership.contests import Contests, NameRefusals
from agent.membership.events import Changed, Contested, MemberEvent
from agent.membership.gossip import GossipQueue
from agent.membership.members import PRESENT, TRANSITIONS, Member, State, Version
from agent.membership.messages import Claim
from agent.membership.own_claims import OwnClaims, spread
from agent.membership.parameters import Parameters
from agent.membership.probing import LocalHealth, Suspicion
from agent.membership.roster import Roster


class Claims:
    """The state of each member, as this agent believes it. Events are appended to `events`."""

    def __init__(
        self, roster: Roster, queue: GossipQueue, health: LocalHealth, parameters: Parameters, events: list[MemberEvent]
    ) -> None:
        self._roster = roster
        self._queue = queue
        self._health = health
        self._parameters = parameters
        self._events = events
        self._suspicions: dict[str, Suspicion] = {}
        self.own = OwnClaims(roster, queue, health, events)
        self.contests = Contests()
        self.refusals = NameRefusals(roster, self.contests)
        self.revoked: frozenset[str] = frozenset()
        """Boards that are no members: claims about them are passed over."""
        self.refused_members = 0
        """Claims about new members that the full table did not take in."""

    def consider(self, claim: Claim, now: float) -> None:
        """Take in a claim if it is news, and pass it on."""
        if claim.name == self._roster.own.name:
            self.own.consider(claim, now)
            return
        if claim.name in self.revoked:
            return
        member = self._roster.get(claim.name)
        if member is None:
            self._unknown(claim, now)
        elif (claimed := Version(claim.epoch, claim.incarnation, claim.state)) > member.version:
            if member.present and not member.silent and claim.address != member.address:
                self._contest(member, claim, now)
            else:
                self._apply(member, claim, claimed, now)
        elif claimed == member.version and claim.state is State.SUSPECT:
            self._confirm(claim)

    def suspect(self, member: Member, now: float) -> None:
        """Our own probe of `member` failed."""
        version = member.version
        host, port = member.address
        own = self._roster.own.name
        claim = Claim(member.name, version.epoch, version.incarnation, State.SUSPECT, host, port, own)
        if member.present:
            self.consider(claim, now)

    def heard(self, sender: str, now: float) -> None:
        """A packet of `sender` proves that it ran: a suspicion of it begins anew."""
        suspicion = self._suspicions.get(sender)
        if suspicion is not None:
            suspicion.began, suspicion.checked_at = now, None

    def answered(self, member: Member, now: float) -> None:
        """The member answered our ping: a claim to its name from another address is refused."""
        refused = self.contests.answered(member, now)
        if refused is not None and refused.address != member.address:
            self._events.append(Contested(member.name, member.address, refused.address))

    def failed(self, member: Member, now: float) -> None:
        """A probe of the member failed: a claim to its name from another address holds now, else it is suspected."""
        member.failed_at = now
        claim = self.contests.end(member.name)
        if claim is not None:
            self.consider(claim, now)
            if member.address == claim.address:
                return
        self.suspect(member, now)

    def knows_better(self, claim: Claim) -> bool:
        """True if we hold a newer claim about an earlier suspicion or death."""
        member = self._roster.get(claim.name)
        claimed = Version(claim.epoch, claim.incarnation, claim.state)
        return member is not None and claim.state in (State.SUSPECT, State.DEAD) and claimed < member.version

    def revoke(self, names: frozenset[str], now: float) -> None:
        """From now on these boards are no members. Those that are present count as dead."""
        self.revoked = frozenset()
        for member in [m for m in self._roster if m.name in names and m.present and m is not self._roster.own]:
            version, (host, port) = member.version, member.address
            own = self._roster.own.name
            self.consider(Claim(member.name, version.epoch, version.incarnation, State.DEAD, host, port, own), now)
        self.revoked = names

    def due_to_check(self, now: float) -> list[Member]:
        """Suspects that will soon be held for dead, each once per suspicion."""
        steps = ((name, one) for name, one in self._suspicions.items() if one.checked_at is None)
        due = [name for name, one in steps if one.next_step(self._parameters) <= now]
        for name in due:
            self._suspicions[name].checked_at = now
        members = [self._roster.get(name) for name in due]
        return [member for member in members if member is not None and member.state is State.SUSPECT]

    def expire(self, now: float) -> None:
        """Declares members dead whose suspicion was not refuted in time; forgets those that are gone for long."""
        checked = ((name, one) for name, one in self._suspicions.items() if one.checked_at is not None)
        over = [name for name, one in checked if one.next_step(self._parameters) <= now]
        for name in over:
            member = self._roster.get(name)
            if member is not None and member.state is State.SUSPECT:
                version, (host, port) = member.version, member.address
                own = self._roster.own.name
                dead = Claim(name, version.epoch, version.incarnation, State.DEAD, host, port, own)
                self.consider(dead, now)

    def forget(self, now: float) -> None:
        """Remove members that have been dead, or have left, for long."""
        self.contests.expire(now)
        keep = {State.DEAD: self._parameters.forget_dead_s, State.LEFT: self._parameters.forget_left_s}
        gone = [m.name for m in self._roster if m.state in keep and now - m.since > keep[m.state]]
        for name in gone:
            if name != self._roster.own.name:
                self._roster.forget(name)

    def put_off(self, seconds: float) -> None:
        """Do not count time in which this agent did not run."""
        for suspicion in self._suspicions.values():
            suspicion.put_off(seconds)
        self.contests.put_off(seconds)

    def next_deadline(self) -> float:
        """The earliest monotonic time at which a suspicion ends or is checked, or a contest goes on; infinite without
        any."""
        steps = (s.next_step(self._parameters) for s in self._suspicions.values())
        return min(min(steps, default=float("inf")), self.contests.next_deadline())

    def _unknown(self, claim: Claim, now: float) -> None:
        version = Version(claim.epoch, claim.incarnation, claim.state)
        if claim.state > State.SUSPECT:
            return  # a member that was never known here is not worth remembering as gone
        member = self._roster.add(claim.name, claim.address, version, now)
        if member is None:
            self.refused_members += 1
            return
        if claim.state is State.SUSPECT:
            self._begin_suspicion(member, claim, now)
        self._events.append(Changed(member.name, "joined", member.state))
        spread(self._queue, member, claim.witness)

    def _contest(self, member: Member, claim: Claim, now: float) -> None:
        """The claim is passed on, so that all members ping at the same time."""
        if self.contests.enter(member, claim, now):
            self._queue.add_claim(claim, claim.name, "contest")

    def _apply(self, member: Member, claim: Claim, claimed: Version, now: float) -> None:
        before = member.state
        if claim.state is State.ALIVE:
            member.failed_at = float("-inf")
        if claim.epoch > member.version.epoch:
            member.sections.clear()
        elif claim.state is State.ALIVE and before in PRESENT and claim.address == member.address:
            member.refuted(now)  # of a suspicion that may not have come here
        self._roster.change(member, claimed, now)
        member.address = claim.address
        self._suspicions.pop(member.name, None)
        if claim.state is State.SUSPECT:
            self._begin_suspicion(member, claim, now)
        self._events.append(Changed(member.name, TRANSITIONS[before][claim.state], claim.state))
        spread(self._queue, member, claim.witness)
        if not member.present and (waiting := self.contests.end(member.name)) is not None:
            self.consider(waiting, now)

    def _begin_suspicion(self, member: Member, claim: Claim, now: float) -> None:
        patience = min(member.patience(now), self._parameters.suspicion_patience)
        suspicion = Suspicion(now, self._roster.present, patience=patience)
        suspicion.confirm(claim.witness, self._parameters)
        self._suspicions[claim.name] = suspicion

    def _confirm(self, claim: Claim) -> None:
        suspicion = self._suspicions.get(claim.name)
        if suspicion is not None and suspicion.confirm(claim.witness, self._parameters):
            self._queue.add_claim(claim, claim.name, claim.witness)
