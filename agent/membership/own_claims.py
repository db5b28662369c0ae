"""The claims about this agent itself: how it refutes a suspicion, and what it does where another agent has its name."""

from __future__ import annotations

from agent.membership.events import Conflict, EpochRaised, MemberEvent
from agent.membership.gossip import GossipQueue
from agent.membership.members import Address, Member, State, Version
from agent.membership.messages import MAX_NUMBER, Claim, NameHeld, decode_untrusted
from agent.membership.probing import LocalHealth
from agent.membership.roster import Roster, claim_of

CONFLICT_PAUSE_S = 30.0
"""An agent tells once in this time that another one has its name."""
CLAIM_AGAIN_S = 5.0
"""A refused start claims its name again after so long: the other one may have gone."""


class OwnClaims:
    """The state of this agent, as it tells the others. Events are appended to `events`."""

    def __init__(self, roster: Roster, queue: GossipQueue, health: LocalHealth, events: list[MemberEvent]) -> None:
        self._roster, self._queue, self._health, self._events = roster, queue, health, events
        self._conflict_at = float("-inf")
        self._claimed_at = float("-inf")
        self.leaving = False
        self.refuting = False
        """A suspicion of ourselves was answered, and no packet has carried the answer yet."""

    def announce(self, now: float, state: State = State.ALIVE, incarnation: int | None = None) -> None:
        """Spread a claim about ourselves."""
        own = self._roster.own
        version = own.version
        incarnation = version.incarnation if incarnation is None else incarnation
        self._roster.change(own, Version(version.epoch, min(incarnation, MAX_NUMBER), state), now)
        spread(self._queue, own, own.name)

    def consider(self, claim: Claim, now: float) -> None:
        """Take in a claim about this agent."""
        own = self._roster.own
        if self.leaving or (claim.epoch, claim.incarnation) < (own.version.epoch, own.version.incarnation):
            return
        if claim.epoch > own.version.epoch:
            if claim.address == own.address:
                self._raise_epoch(claim.epoch, now)
            else:  # whoever refuses us for it says so: see `held`
                self._conflict(claim.address, now)
        elif claim.state is not State.ALIVE:
            self._health.adjust(1)
            self.announce(now, incarnation=claim.incarnation + 1)
            self.refuting = True
        elif claim.address != own.address:
            if self._conflict(claim.address, now):
                self.announce(now, incarnation=claim.incarnation + 1)
        elif claim.incarnation > own.version.incarnation:  # of our run before, with the same epoch
            self.announce(now, incarnation=claim.incarnation + 1)

    def held(self, held: NameHeld, now: float) -> None:
        """Others refuse this start: they know a later one, or an agent at another address has our name."""
        own = self._roster.own
        if held.name != own.name or self.leaving:
            return
        if held.address != own.address:
            self._conflict(held.address, now)
        if now - self._claimed_at < CLAIM_AGAIN_S and held.epoch <= own.version.epoch:
            return
        self._claimed_at = now
        if held.epoch > own.version.epoch:
            self._raise_epoch(held.epoch, now)
        else:
            self.announce(now)

    def told_untrusted(self, payload: bytes, now: float) -> None:
        """Take in the answer to a hello that was refused. Raises `ProtocolError` if it is malformed."""
        for message in decode_untrusted(payload):
            if isinstance(message, NameHeld):
                self.held(message, now)

    def _conflict(self, address: Address, now: float) -> bool:
        """Tells the owner that another agent has our name. Returns False within `CONFLICT_PAUSE_S` of the last time."""
        if now - self._conflict_at < CONFLICT_PAUSE_S:
            return False
        self._conflict_at = now
        self._events.append(Conflict(address))
        return True

    def _raise_epoch(self, epoch: int, now: float) -> None:
        """The fleet remembers a start of ours with this epoch, which is later: the stored epoch was lost, the clock is
        behind, or another agent had our name."""
        own = self._roster.own
        if epoch >= MAX_NUMBER:
            return
        self._roster.change(own, Version(epoch + 1, 0, State.ALIVE), now)
        for section in own.sections.values():
            section.epoch = epoch + 1
        self._events.append(EpochRaised(epoch + 1))
        self.announce(now)


def spread(queue: GossipQueue, member: Member, witness: str) -> None:
    """Tells the others the state of a member, in place of what waits about it."""
    queue.discard_claims(member.name)
    queue.add_claim(claim_of(member, witness), member.name, witness)
