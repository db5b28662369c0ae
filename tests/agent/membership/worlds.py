"""Transports of members that know each other's addresses."""

from __future__ import annotations

from random import Random

from agent.membership.keys import KeyRing
from agent.membership.members import State
from agent.membership.messages import Claim
from agent.membership.packets import Sealer
from agent.membership.parameters import Parameters
from agent.membership.protocol import Membership
from agent.membership.transport import Transport
from edgert.core.system_clock import SystemClock


async def started(name: str, key: bytes = bytes(32)) -> Transport:
    clock, random = SystemClock(), Random(name)
    membership = Membership(name, ("127.0.0.1", 1), 1, Parameters(), random, clock.monotonic())
    transport = Transport(membership, Sealer(name, "f", 1, KeyRing([key]), random.randbytes), clock, lambda _: None)
    address = await transport.start(("127.0.0.1", 0))
    membership.move(address, clock.monotonic())
    return transport


def introduce(to: Transport, other: Transport) -> None:
    own = other.membership.roster.own
    to.membership.claims.consider(Claim(own.name, 1, 9, State.ALIVE, *own.address, own.name), 0.0)
