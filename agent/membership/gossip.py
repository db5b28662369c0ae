"""The queue of updates that ride on packets: the least often sent first, each sent a bounded number of times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agent.membership.members import State
from agent.membership.messages import Claim, MembershipMessage, SectionUpdate, body, encode
from agent.membership.parameters import Parameters

MAX_BODY: Final = 1_100
"""Bytes of a packet's body, at most."""
MAX_NAMED_BODY: Final = 1_116
"""Bytes of a packet's body and its sender's name: with seal and signature the packet has `packets.MAX_SENT` bytes."""
PACKET_COST: Final = 110
"""Bytes that seal, UDP and IP add to a body, for the budget of gossip."""
LEAST_PACKET: Final = PACKET_COST + 100
"""Bytes without which a packet of gossip carries too little for its cost."""
LEAST_STATE: Final = 300
"""Bytes of budget without which the queue of state is not looked through: in a large fleet it is long."""
FIRST: Final = "board"
"""The section of state that goes before the others: a board's links hang on it, and it changes rarely. Behind loads and
forecasts, which change all the time, that of a restarted board took 30 to 140 s to reach all."""


@dataclass(slots=True)
class Bucket:
    """Bytes that may be sent: `rate` per second, at most `burst` at once."""

    rate: float
    burst: float
    left: float
    at: float
    """Monotonic time in seconds at which `left` was right."""

    def refill(self, now: float) -> None:
        self.left = min(self.burst, self.left + (now - self.at) * self.rate)
        self.at = now

    def has_at(self, wanted: float) -> float:
        """The monotonic time in seconds at which it has so many bytes."""
        return self.at + max(0.0, wanted - self.left) / self.rate


@dataclass(slots=True)
class _Item:
    payload: bytes
    order: int
    urgent: bool
    sent: int = 0


def largest_body(sender: str) -> int:
    """Bytes of the body of a packet of `sender`, at most."""
    return min(MAX_BODY, MAX_NAMED_BODY - len(sender))


class GossipQueue:
    """Updates by key; a newer update of a key replaces the older one.

    Refutations and deaths go before suspicions, so that a storm of these does not hold up what ends it; sections of
    state go last, and of these the one on which links hang (`FIRST`) goes first."""

    def __init__(self) -> None:
        self._claims: dict[tuple[str, ...], _Item] = {}
        self._states: dict[tuple[str, ...], _Item] = {}
        self._order = 0

    @property
    def claims(self) -> int:
        """Number of claims that wait."""
        return len(self._claims)

    @property
    def states(self) -> int:
        """Number of sections of state that wait."""
        return len(self._states)

    def add_claim(self, message: MembershipMessage, *key: str) -> None:
        """Spread what a member is (alive, suspect, dead, left)."""
        self._put(
            self._claims, message, key, urgent=not (isinstance(message, Claim) and message.state is State.SUSPECT)
        )

    def add_state(self, message: MembershipMessage, *key: str) -> None:
        """Spread a section of a member's state."""
        self._put(self._states, message, key, urgent=isinstance(message, SectionUpdate) and message.section == FIRST)

    def discard_claims(self, name: str) -> None:
        """Forget the claims about a member that a newer claim has made void."""
        for key in [key for key in self._claims if key[0] == name]:
            del self._claims[key]

    def _put(
        self, where: dict[tuple[str, ...], _Item], message: MembershipMessage, key: tuple[str, ...], *, urgent: bool
    ) -> None:
        self._order += 1
        where[key] = _Item(encode(message), self._order, urgent)

    def take_claims(self, room: int, transmissions: int, of_suspicions: int, urgent: bool = False) -> list[bytes]:
        """Encoded claims of together at most `room` bytes. Each counts as sent once more; after `transmissions` (a
        suspicion: `of_suspicions`) it leaves the queue. `urgent`: only refutations and deaths."""
        taken: list[bytes] = []
        for key, item in sorted(self._claims.items(), key=_precedence):
            if len(item.payload) > room or (urgent and not item.urgent):
                continue
            room -= len(item.payload)
            taken.append(_sent(self._claims, key, item, transmissions if item.urgent else of_suspicions))
        return taken

    def take_states(self, room: int, transmissions: int) -> list[bytes]:
        """Encoded sections of state of together at most `room` bytes. None is passed over for a shorter one: where the
        room is a small budget, long ones would never go."""
        taken: list[bytes] = []
        for key, item in sorted(self._states.items(), key=_precedence):
            if len(item.payload) > room:
                break
            room -= len(item.payload)
            taken.append(_sent(self._states, key, item, transmissions))
        return taken


class Budgets:
    """Limits the news of a queue: bytes per second of gossip that no probe carries, and of state in all packets."""

    def __init__(self, queue: GossipQueue, parameters: Parameters, now: float, largest: int) -> None:
        """`largest`: bytes of a packet's body, at most."""
        self._queue, self._parameters, self._largest = queue, parameters, largest
        rate, burst = parameters.gossip_bytes_s, parameters.gossip_burst_bytes
        self._any = Bucket(rate, burst, burst, now)
        self._urgent = Bucket(rate, burst, burst, now)
        """Budget of refutations and deaths alone: a storm of suspicions must not hold up what ends it."""
        burst = parameters.state_burst_bytes
        self._state = Bucket(parameters.state_bytes_s, burst, burst, now)

    def refill(self, now: float) -> None:
        for bucket in (self._any, self._urgent, self._state):
            bucket.refill(now)

    def full_packet_at(self) -> float:
        """The monotonic time in seconds at which state fills a packet."""
        return self._state.has_at(self._largest + PACKET_COST)

    def take_packet(self, members: int) -> list[bytes]:
        """News for a packet of gossip alone, in a fleet of `members`."""
        urgent = self._any.left <= LEAST_PACKET
        bucket = self._urgent if urgent else self._any
        room = min(self._largest, int(bucket.left) - PACKET_COST)
        parts = self.take(room, members, urgent, alone=True) if room > 0 else []
        if parts:
            bucket.left -= len(body(parts)) + PACKET_COST
        return parts

    def take(self, room: int, members: int, urgent: bool = False, alone: bool = False) -> list[bytes]:
        """News of at most `room` bytes. `urgent`: only refutations and deaths; `alone`: the packet goes out for this
        gossip only, so state pays for the packet where it is all that is in it."""
        p, state = self._parameters, self._state
        claims = self._queue.take_claims(room, p.transmissions(members), p.transmissions_of_suspicions(members), urgent)
        cost = PACKET_COST if alone and not claims else 0
        left = min(room - sum(map(len, claims)), int(state.left) - cost)
        if urgent or left < LEAST_STATE:
            return claims
        states = self._queue.take_states(left, p.transmissions(members))
        state.left -= sum(map(len, states)) + (cost if states else 0)
        return claims + states


def _sent(queue: dict[tuple[str, ...], _Item], key: tuple[str, ...], item: _Item, transmissions: int) -> bytes:
    item.sent += 1
    if item.sent >= transmissions:
        del queue[key]
    return item.payload


def _precedence(entry: tuple[tuple[str, ...], _Item]) -> tuple[bool, int, int]:
    """The least often sent first, of these the newest."""
    item = entry[1]
    return not item.urgent, item.sent, -item.order
