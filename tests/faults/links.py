"""Hops that are cut, stand still, swallow, repeat or delay, and a route that is gone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar, Self

from tests.faults.circumstances import HopName
from tests.faults.fault import Fault, seconds
from tests.faults.routes import Kind
from tests.proxy import Direction, is_publish, with_dup

if TYPE_CHECKING:
    from tests.faults.path import WholePath

HOPS: tuple[HopName, ...] = ("sensors", "uplink", "collector")
RESULT_HOPS: tuple[HopName, ...] = ("uplink", "collector")
DIRECTIONS: tuple[Direction, ...] = ("up", "down")


@dataclass(frozen=True, slots=True)
class OnHop(Fault):
    """Of one hop, both ways."""

    hop: HopName
    shortest_s: ClassVar[float] = 0.2
    longest_s: ClassVar[float] = 4.0

    @classmethod
    def draw(cls, draw: Random) -> Self:
        # the uplink is the one that is cut most in a fleet
        return cls(seconds(draw, cls.shortest_s, cls.longest_s), draw.choice((*HOPS, "uplink")))

    def heal(self, path: WholePath) -> None:
        path.hops[self.hop].mend()


@dataclass(frozen=True, slots=True)
class Cut(OnHop):
    """Connections end and nobody can connect."""

    name = "cut"

    def inject(self, path: WholePath) -> str:
        return f"{path.hops[self.hop].cut()} connections cut"


@dataclass(frozen=True, slots=True)
class Flap(OnHop):
    """The connection ends, and may come back at once."""

    name = "flap"
    shortest_s = longest_s = 0.0

    def inject(self, path: WholePath) -> str:
        return f"{path.hops[self.hop].cut(refuse=False)} connections cut"


@dataclass(frozen=True, slots=True)
class LoseRoute(OnHop):
    """The kernel has no way there any more: packets vanish, or the sender learns that none gets through; nobody's
    connection ends. Without root the hop swallows both directions."""

    kind: Kind
    name = "lose the route"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.2, 5.0), draw.choice((*HOPS, "uplink")), draw.choice(("blackhole", "unreachable")))

    def inject(self, path: WholePath) -> str:
        hop = path.hops[self.hop]
        if path.routes.lose(hop.host, self.kind):
            return f"no route to {hop.host}"
        for direction in DIRECTIONS:
            hop.swallow(direction)
        return "swallowing both ways (a route cannot be taken without root)"

    def heal(self, path: WholePath) -> None:
        hop = path.hops[self.hop]
        if not path.routes.give_back(hop.host):
            hop.cut()
            hop.mend()


@dataclass(frozen=True, slots=True)
class OneWay(OnHop):
    """Of one hop, one way."""

    direction: Direction

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, cls.shortest_s, cls.longest_s), draw.choice(HOPS), draw.choice(DIRECTIONS))


@dataclass(frozen=True, slots=True)
class Stall(OneWay):
    """It stands still; TCP keeps what is on its way."""

    name = "stall"

    def inject(self, path: WholePath) -> str:
        path.hops[self.hop].stall(self.direction)
        return "stalled"


@dataclass(frozen=True, slots=True)
class Swallow(OneWay):
    """It leads nowhere; in the end the connection breaks. So the sender had reason to think that it was heard: of
    acknowledgements to the sensors' broker, the messages come again with DUP."""

    name = "swallow"

    def inject(self, path: WholePath) -> str:
        path.hops[self.hop].swallow(self.direction)
        return "swallowing"

    def heal(self, path: WholePath) -> None:
        path.hops[self.hop].cut()
        path.hops[self.hop].mend()


@dataclass(frozen=True, slots=True)
class Tampering(OneWay):
    """With half of the results and acknowledgements."""

    seed: int
    shortest_s = 1.0
    longest_s = 5.0

    @classmethod
    def draw(cls, draw: Random) -> Self:
        length_s, hop = seconds(draw, cls.shortest_s, cls.longest_s), draw.choice(RESULT_HOPS)
        return cls(length_s, hop, draw.choice(DIRECTIONS), draw.getrandbits(32))

    def inject(self, path: WholePath) -> str:
        draw = Random(self.seed)

        def how(packet: bytes) -> Sequence[tuple[float, bytes]]:
            return self.instead(packet, draw) if is_publish(packet) and draw.random() < 0.5 else ((0.0, packet),)

        path.hops[self.hop].tamper(self.direction, how)
        return "tampering"

    @abstractmethod
    def instead(self, packet: bytes, draw: Random) -> Sequence[tuple[float, bytes]]:
        """What is handed on for a packet: (delay in s, packet)."""


@dataclass(frozen=True, slots=True)
class Repeat(Tampering):
    """They come twice, the second time with DUP and maybe later."""

    name = "repeat"

    def instead(self, packet: bytes, draw: Random) -> Sequence[tuple[float, bytes]]:
        return (0.0, packet), (draw.choice((0.0, draw.uniform(0.0, 2.0))), with_dup(packet))


@dataclass(frozen=True, slots=True)
class Delay(Tampering):
    """They overtake each other."""

    name = "delay"

    def instead(self, packet: bytes, draw: Random) -> Sequence[tuple[float, bytes]]:
        return ((draw.uniform(0.05, 3.0), packet),)
