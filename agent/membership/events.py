"""Events of the membership protocol for its owner, and outputs for the transport."""

from __future__ import annotations

from dataclasses import dataclass

from agent.membership.members import Address, Peer, State


@dataclass(frozen=True, slots=True)
class Changed:
    """A member's state changed. `what`: joined, or a name of `members.TRANSITIONS`."""

    name: str
    what: str
    state: State


@dataclass(frozen=True, slots=True)
class SectionChanged:
    """Another member published a new version of a section of its state."""

    name: str
    section: str


@dataclass(frozen=True, slots=True)
class Measured:
    """A member answered a ping of ours directly. `coordinate` is its own; empty: it has none yet."""

    name: str
    rtt_s: float
    coordinate: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another agent uses our name at `address`."""

    address: Address


@dataclass(frozen=True, slots=True)
class Contested:
    """Two agents use the name of a member: the one at `held`, which answers and stays the member, and one at
    `refused`."""

    name: str
    held: Address
    refused: Address


@dataclass(frozen=True, slots=True)
class EpochRaised:
    """The fleet knew a later epoch of ours than the one we began with; this is the new one, to be stored."""

    epoch: int


MemberEvent = Changed | SectionChanged | Measured | Conflict | Contested | EpochRaised


@dataclass(frozen=True, slots=True)
class Datagram:
    """Send `payload` (a body, not sealed yet) over UDP."""

    to: Peer
    payload: bytes


@dataclass(frozen=True, slots=True)
class StreamPing:
    """Ping `target` over TCP; report an answer with `Membership.stream_acknowledged`."""

    address: Address
    target: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Sync:
    """Exchange tables over TCP: send `Membership.table()`, hand the answer to `Membership.merge_untrusted`."""

    address: Address
    name: str = ""
    """The member that must answer; empty for a seed, of which only the address is known."""


MemberOutput = Datagram | StreamPing | Sync
