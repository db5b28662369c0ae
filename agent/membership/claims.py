"""The rules of claims: which one holds, when a suspicion becomes a death, and how this agent refutes one about itself.

A claim replaces what is held if its version (epoch, incarnation, state) is greater. So the outcome does not depend on
the order in which claims arrive, nor on repetitions.
"""

from __future__ import annotations

from agent.membership.events import Changed, Conflict, EpochRaised, MemberEvent
from agent.membership.gossip import GossipQueue
from agent.membership.lifeguard import LocalHealth, Suspicion
from agent.membership.members import PRESENT, TRANSITIONS, Member, State, Version
from agent.membership.messages import MAX_NUMBER, Claim
from agent.membership.parameters import Parameters
from agent.membership.roster import Roster, claim_of

CONFLICT_PAUSE_S = 30.0
"""Two agents of one name would raise their epochs against each other; each does it once in this time."""


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
        self._conflict_at = float("-inf")
        self.revoked: frozenset[str] = frozenset()
        """Boards that are no members: claims about them are passed over."""
        self.leaving = False
        self.refuting = False
        """A suspicion of ourselves was answered, and no packet has carried the answer yet."""
        self.refused_members = 0
        """Claims about new members that the full table did not take in."""

    def consider(self, claim: Claim, now: float) -> None:
        """Take in a claim if it is news, and pass it on."""
        if claim.name == self._roster.own.name:
            self._about_self(claim, now)
            return
        if claim.name in self.revoked:
            return
        member = self._roster.get(claim.name)
        if member is None:
            self._unknown(claim, now)
        elif (claimed := Version(claim.epoch, claim.incarnation, claim.state)) > member.version:
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
        keep = {State.DEAD: self._parameters.forget_dead_s, State.LEFT: self._parameters.forget_left_s}
        gone = [m.name for m in self._roster if m.state in keep and now - m.since > keep[m.state]]
        for name in gone:
            if name != self._roster.own.name:
                self._roster.forget(name)

    def announce(self, now: float, state: State = State.ALIVE, incarnation: int | None = None) -> None:
        """Spread a claim about ourselves."""
        own = self._roster.own
        version = own.version
        incarnation = version.incarnation if incarnation is None else incarnation
        self._roster.change(own, Version(version.epoch, min(incarnation, MAX_NUMBER), state), now)
        self._spread(own, own.name)

    def put_off(self, seconds: float) -> None:
        """Do not count time in which this agent did not run."""
        for suspicion in self._suspicions.values():
            suspicion.put_off(seconds)

    def next_deadline(self) -> float:
        """The earliest monotonic time at which a suspicion ends or is checked; infinite without any."""
        return min((s.next_step(self._parameters) for s in self._suspicions.values()), default=float("inf"))

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
        self._spread(member, claim.witness)

    def _apply(self, member: Member, claim: Claim, claimed: Version, now: float) -> None:
        before = member.state
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
        self._spread(member, claim.witness)

    def _begin_suspicion(self, member: Member, claim: Claim, now: float) -> None:
        patience = min(member.patience(now), self._parameters.suspicion_patience)
        suspicion = Suspicion(now, self._roster.present, patience=patience)
        suspicion.confirm(claim.witness, self._parameters)
        self._suspicions[claim.name] = suspicion

    def _confirm(self, claim: Claim) -> None:
        suspicion = self._suspicions.get(claim.name)
        if suspicion is not None and suspicion.confirm(claim.witness, self._parameters):
            self._queue.add_claim(claim, claim.name, claim.witness)

    def _spread(self, member: Member, witness: str) -> None:
        self._queue.discard_claims(member.name)
        self._queue.add_claim(claim_of(member, witness), member.name, witness)

    def _about_self(self, claim: Claim, now: float) -> None:
        own = self._roster.own
        if self.leaving or (claim.epoch, claim.incarnation) < (own.version.epoch, own.version.incarnation):
            return
        if claim.epoch > own.version.epoch:
            self._raise_epoch(claim, now)
        elif claim.state is not State.ALIVE:
            self._health.adjust(1)
            self.announce(now, incarnation=claim.incarnation + 1)
            self.refuting = True
        elif claim.address != own.address:
            self._events.append(Conflict(claim.address))
        elif claim.incarnation > own.version.incarnation:  # of our run before, with the same epoch
            self.announce(now, incarnation=claim.incarnation + 1)

    def _raise_epoch(self, claim: Claim, now: float) -> None:
        """The fleet remembers a later start of ours: the stored epoch was lost, or another agent has our name."""
        own = self._roster.own
        if claim.address != own.address:
            self._events.append(Conflict(claim.address))
            if now - self._conflict_at < CONFLICT_PAUSE_S:
                return
            self._conflict_at = now
        if claim.epoch >= MAX_NUMBER:
            return
        self._roster.change(own, Version(claim.epoch + 1, 0, State.ALIVE), now)
        for section in own.sections.values():
            section.epoch = claim.epoch + 1
        self._events.append(EpochRaised(claim.epoch + 1))
        self.announce(now)
