"""The table of members, and the choice of one at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from agent.membership.members import PRESENT, Address, Member, Section, State, Version
from agent.membership.messages import Claim, Known, SectionUpdate

MAX_SECTIONS: Final = 8
"""Sections of state that are kept of a member."""


class Roster:
    """Members by name, ourselves included. `random` is handed in."""

    def __init__(self, own: Member, random: Random, limit: int) -> None:
        self.own = own
        self._random = random
        self._limit = limit
        self._members = {own.name: own}
        self._names = [own.name]
        self._round: list[str] = []
        self.present = 1
        """Number of alive and suspected members, ourselves included."""

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def get(self, name: str) -> Member | None:
        return self._members.get(name)

    def epoch_of(self, name: str) -> int | None:
        """The epoch of a member; None of a board that is none."""
        member = self._members.get(name)
        return None if member is None else member.version.epoch

    def add(self, name: str, address: Address, version: Version, now: float) -> Member | None:
        """A new member, put at a random place of the probing order (SWIM §4.3); None if the table is full."""
        if len(self._members) >= self._limit:
            return None
        member = self._members[name] = Member(name, address, version, now)
        self.present += member.present
        self._names.append(name)
        self._round.insert(self._random.randrange(len(self._round) + 1), name)
        return member

    def forget(self, name: str) -> None:
        """Remove a member that has been gone for long."""
        self.present -= self._members.pop(name).present
        self._names.remove(name)

    def change(self, member: Member, version: Version, now: float) -> None:
        """Give a member of this table another version."""
        before, member.version = member.version, version
        if before.state != version.state:
            member.since = now
            self.present += (version.state in PRESENT) - (before.state in PRESENT)

    def next_to_probe(self) -> Member | None:
        """The next of a shuffled round of present members: each is probed within a bounded time (SWIM §4.3)."""
        for _ in range(2):
            while self._round:
                member = self._members.get(self._round.pop())
                if member is not None and member.present and member is not self.own:
                    return member
            self._round = list(self._names)
            self._random.shuffle(self._round)
        return None

    def choose(self, count: int, accept: Callable[[Member], bool]) -> list[Member]:
        """Up to `count` different members at random that `accept` takes, never ourselves."""
        chosen: dict[str, Member] = {}
        for _ in range(4 * count + 8):
            member = self._members[self._random.choice(self._names)]
            if member is not self.own and accept(member):
                chosen[member.name] = member
                if len(chosen) >= count:
                    return list(chosen.values())
        if len(self._names) <= 8 * count:  # few accepted ones are found by looking at all
            rest = [m for m in self._members.values() if m is not self.own and accept(m) and m.name not in chosen]
            more = self._random.sample(rest, min(count - len(chosen), len(rest)))
            return [*chosen.values(), *more]
        return list(chosen.values())

    def take_section(self, update: SectionUpdate, limit: int, now: float) -> bool:
        """Takes in another member's section of at most `limit` bytes. Returns whether it was news."""
        member = self._members.get(update.name)
        if member is None or member is self.own or len(update.payload) > limit or update.epoch < member.version.epoch:
            return False
        fits = update.section in member.sections or len(member.sections) < MAX_SECTIONS
        if not fits or not newer(update, member.sections.get(update.section)):
            return False
        member.sections[update.section] = Section(update.epoch, update.version, update.payload, now)
        return True

    def unreachable(self) -> list[Member]:
        """Members held for dead."""
        return [member for member in self._members.values() if member.state is State.DEAD]


def claim_of(member: Member, witness: str) -> Claim:
    """The state of a member as a claim by `witness`."""
    version, (host, port) = member.version, member.address
    return Claim(member.name, version.epoch, version.incarnation, version.state, host, port, witness)


def section_of(member: Member, name: str) -> SectionUpdate:
    """A section of a member, to pass on."""
    section = member.sections[name]
    return SectionUpdate(member.name, section.epoch, name, section.version, section.payload)


def known_of(member: Member) -> Iterator[Known]:
    """The versions of a member's sections."""
    for name, section in member.sections.items():
        yield Known(member.name, section.epoch, name, section.version)


def newer(update: SectionUpdate, held: Section | None) -> bool:
    """True if the update replaces the section that is held."""
    return held is None or (update.epoch, update.version) > (held.epoch, held.version)
