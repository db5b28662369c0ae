"""A member, and the order of claims about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

Address = tuple[str, int]
"""(host, port) of an agent: the same port number for UDP and TCP."""


class Peer(NamedTuple):
    """One start of one board: the sender or the receiver of a packet."""

    name: str
    epoch: int
    address: Address


class State(IntEnum):
    """The order is the rank of a claim among claims of the same epoch and incarnation: the greater one holds."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3


TRANSITIONS: Final[dict[State, dict[State, str]]] = {
    State.ALIVE: {State.SUSPECT: "suspected", State.DEAD: "died", State.LEFT: "left", State.ALIVE: "updated"},
    State.SUSPECT: {State.ALIVE: "refuted", State.DEAD: "died", State.LEFT: "left", State.SUSPECT: "suspected"},
    State.DEAD: {State.ALIVE: "returned", State.LEFT: "left", State.SUSPECT: "suspected", State.DEAD: "updated"},
    State.LEFT: {State.ALIVE: "returned", State.SUSPECT: "suspected", State.DEAD: "died", State.LEFT: "updated"},
}
"""State before -> state after -> name of the event. A claim that is not newer makes no transition."""

REFUTATION_MEMORY_S: Final = 60.0
MAX_REFUTATIONS: Final = 4
"""A member that is often starved is waited for up to so many intervals longer. All members see its refutations, so
that suspicions of it do not fill the gossip; the death of a member that was healthy is seen as fast as ever."""

PRESENT: Final = (State.ALIVE, State.SUSPECT)


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """How new a claim is: first the restart epoch, then the incarnation, then the rank of the state."""

    epoch: int
    incarnation: int
    state: State


@dataclass(slots=True)
class Section:
    """One part of a member's published state. A newer version of the same epoch, or a newer epoch, replaces it."""

    epoch: int
    version: int
    payload: bytes
    heard: float = field(default=0.0, compare=False)
    """Monotonic time at which another member's section came to this agent."""


@dataclass(slots=True, eq=False)
class Member:
    """One member as this agent knows it."""

    name: str
    address: Address
    version: Version
    since: float
    """Monotonic time of the last change of state."""
    sections: dict[str, Section] = field(default_factory=dict)
    refutations: int = 0
    """Suspicions of it that it refuted, each within `REFUTATION_MEMORY_S` of the one before."""
    refuted_at: float = float("-inf")
    answered_at: float = float("-inf")
    """Monotonic time at which it answered a ping of ours last: then the ways there and back were open."""
    failed_at: float = float("-inf")
    """Monotonic time at which a probe of ours failed last."""

    first_at: float = field(init=False)
    """Monotonic time at which this agent heard of the member first."""

    def __post_init__(self) -> None:
        self.first_at = self.since

    def refuted(self, now: float) -> None:
        """Notes that the member refuted a suspicion: it is starved now and then, or its packets are lost."""
        recent = now - self.refuted_at < REFUTATION_MEMORY_S
        self.refutations = min(self.refutations + 1, MAX_REFUTATIONS) if recent else 1
        self.refuted_at = now

    def patience(self, now: float) -> int:
        """1, and 1 more for each suspicion that it refuted lately: so much longer it is waited for than others."""
        return 1 + self.refutations if now - self.refuted_at < REFUTATION_MEMORY_S else 1

    @property
    def silent(self) -> bool:
        """True if it has answered none of our pings since a probe of ours failed."""
        return self.failed_at > self.answered_at

    @property
    def state(self) -> State:
        return self.version.state

    @property
    def peer(self) -> Peer:
        """The receiver of packets to it, as far as is known here."""
        return Peer(self.name, self.version.epoch, self.address)

    @property
    def present(self) -> bool:
        """Alive or suspected: takes part in probes and gossip."""
        return self.version.state in PRESENT
