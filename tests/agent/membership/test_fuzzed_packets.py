"""Packets from outside, replayed, truncated, changed, random, and nonsense that was sealed with the fleet's key:
counted, never answered, and nothing grows. `EDGERT_FUZZ_PACKETS` sets how many; the seed is printed."""

from __future__ import annotations

import asyncio
import os
import random
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import pytest

from agent.membership.keys import KeyRing
from agent.membership.members import Peer, State
from agent.membership.messages import Ack, Claim, MembershipMessage, Ping, PingRequest, SectionUpdate, body, encode
from agent.membership.packets import MAX_DATAGRAM, Sealer
from agent.membership.parameters import Parameters
from agent.membership.protocol import Membership
from agent.network.transport import Transport
from tests.agent.membership.simulated_fleet import SimulatedFleet

PACKETS = int(os.environ.get("EDGERT_FUZZ_PACKETS", "4000"))
KEY, FOREIGN = bytes(range(32)), bytes(range(1, 33))
OUTSIDE = ("203.0.113.9", 7946)
US = Peer("us", 1, ("10.0.0.1", 7946))


class Wire(asyncio.DatagramTransport):
    """Takes what the agent sends."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, int]] = []

    def sendto(self, data: object, addr: object = None) -> None:
        self.sent.append(addr)  # type: ignore[arg-type]

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass


class StillClock:
    """The agent's own timers are not part of this."""

    def monotonic(self) -> float:
        return 100.0

    def wall(self) -> float:
        return 1e9


def recorded(draw: random.Random) -> list[bytes]:
    """Bodies that a fleet really sends: pings, acknowledgements, suspicions, refutations."""
    fleet = SimulatedFleet(8, draw.randrange(2**32), loss=0.1)
    bodies: list[bytes] = []
    send = fleet._send

    def keep(sender: str, to: Peer, payload: bytes) -> None:
        bodies.append(payload)
        send(sender, to, payload)

    fleet._send = keep  # type: ignore[method-assign]
    fleet.starve("board-3", 4.0)
    fleet.run(8)
    return bodies


def foreign(draw: random.Random, bodies: list[bytes], member: Sealer, stranger: Sealer) -> Iterator[bytes]:
    """Packets that must not open. The member's were all taken before."""
    taken = [member.seal(draw.choice(bodies), US) for _ in range(50)]
    yield from taken  # the first time they open: see the test
    while True:
        packet = bytearray(draw.choice(taken))
        match draw.randrange(8):
            case 0:
                yield bytes(packet)  # replayed
            case 1:
                yield bytes(packet[: draw.randrange(len(packet))])
            case 2:
                packet[draw.randrange(len(packet))] ^= 1 << draw.randrange(8)
                yield bytes(packet)
            case 3:
                yield draw.randbytes(draw.randrange(2 * MAX_DATAGRAM))
            case 4:
                yield stranger.seal(draw.choice(bodies), US)
            case 5:
                yield member.seal(draw.choice(bodies), US._replace(name="board-3"))  # meant for another board
            case 6:
                yield member.seal(draw.choice(bodies), US._replace(epoch=0))  # meant for us before our restart
            case _:
                yield bytes(packet) + draw.randbytes(draw.randrange(1, 100))


def sealed_nonsense(draw: random.Random, bodies: list[bytes], member: Sealer) -> Iterator[bytes]:
    """A member went mad: its packets open, and their bodies are changed, or well-formed and untrue."""
    while True:
        if draw.random() < 0.7:
            yield member.seal(body([encode(_untrue(draw)) for _ in range(draw.randrange(1, 8))]), US)
            continue
        changed = bytearray(draw.choice(bodies))
        for _ in range(draw.randrange(1, 6)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        yield member.seal(bytes(changed[: draw.randrange(1, len(changed) + 1)]), US)


def _untrue(draw: random.Random) -> MembershipMessage:
    """About members that there are, and about others."""
    name = draw.choice(["us", "m", "board-3", f"n{draw.randrange(200)}"])
    number = draw.choice([0, 1, draw.randrange(2**40)])
    match draw.randrange(5):
        case 0:
            return Ping(number, name)
        case 1:
            return PingRequest(number, name)
        case 2:
            return Ack(number, (draw.uniform(-1e9, 1e9),) * draw.randrange(5))
        case 3:
            return SectionUpdate(name, number, f"s{draw.randrange(50)}", number, draw.randbytes(draw.randrange(100)))
        case _:
            return Claim(name, number, number, draw.choice(list(State)), "10.0.0.9", 7946, "m")


def agent() -> tuple[Transport, Wire]:
    machine = Membership("us", ("10.0.0.1", 7946), 1, Parameters(max_members=32), random.Random(1), 100.0)
    clock = StillClock()
    sealer = Sealer("us", "f", 1, KeyRing([KEY]), random.Random(2).randbytes)
    transport, wire = Transport(machine, sealer, clock, lambda _: None), Wire()
    transport._udp = wire
    transport._begin = lambda work, name=None: work.close()  # type: ignore[method-assign]  # nothing goes out over TCP
    return transport, wire


def in_loop(test: Callable[[random.Random], Awaitable[None]], seed: int) -> None:
    print(f"seed {seed}, {PACKETS} packets")
    asyncio.run(test(random.Random(seed)))  # type: ignore[arg-type]


async def grown(transport: Transport, packets: Iterator[bytes], number: int) -> int:
    """Bytes that the agent holds more after `number` packets of `packets` from outside."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for count in range(number):
            transport.datagram_received(next(packets), OUTSIDE)
            if count % 50 == 0:
                await asyncio.sleep(0)  # the loop takes out cancelled timers
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("seed", [int(os.environ.get("EDGERT_FUZZ_SEED", "1"))])
def test_foreign_packets_are_counted_never_answered_and_leave_nothing(seed: int) -> None:
    async def run(draw: random.Random) -> None:
        transport, wire = agent()
        transport._tick = lambda: None  # type: ignore[method-assign]  # gossip that is due by time is no answer
        make = partial(Sealer, fleet="f", epoch=1, random_bytes=draw.randbytes)
        member, stranger = make("m", ring=KeyRing([KEY])), make("s", ring=KeyRing([FOREIGN]))
        packets = foreign(draw, recorded(draw), member, stranger)
        for _ in range(200):  # the member's own open once; and caches fill
            transport.datagram_received(next(packets), OUTSIDE)
        wire.sent.clear()
        dropped = transport.sealer.drops.total()
        held = transport.membership.table()
        size = await grown(transport, packets, PACKETS)
        assert transport.sealer.drops.total() == dropped + PACKETS
        assert wire.sent == []
        assert transport.membership.table() == held
        assert size < 100_000
        print(dict(transport.sealer.drops), f"{size} bytes more")
        assert transport.sealer.drops.keys() >= {
            "replay",
            "bad tag",
            "truncated",
            "unknown key",
            "version",
            "too large",
        }

    in_loop(run, seed)


@pytest.mark.parametrize("seed", [int(os.environ.get("EDGERT_FUZZ_SEED", "1"))])
def test_nonsense_of_a_member_stops_nothing_and_is_bounded(seed: int) -> None:
    async def run(draw: random.Random) -> None:
        transport, wire = agent()
        member = Sealer("m", "f", 1, KeyRing([KEY]), draw.randbytes)
        packets = sealed_nonsense(draw, recorded(draw), member)
        await grown(transport, packets, PACKETS // 2)
        wire.sent.clear()
        size = await grown(transport, packets, PACKETS // 2)
        assert len(transport.membership.roster) <= 32
        assert 0 < len(wire.sent) <= 10 * PACKETS, "a packet of at most eight messages causes as many others"
        assert size < 200_000
        print(dict(transport.sealer.drops), f"{size} bytes more, {len(wire.sent)} packets sent")
        assert transport.sealer.drops["malformed"] > 0
        good = Sealer("board-1", "f", 1, KeyRing([KEY]), draw.randbytes)
        opened = transport.sealer.open_untrusted(good.seal(body([]), US))
        assert opened.sender == "board-1", "packets of others are still taken"

    in_loop(run, seed)
