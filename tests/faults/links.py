"""Hops that are cut, stand still, swallow, repeat or delay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal, Self

from tests.faults.fault import Fault, seconds
from tests.faults.proxy import Direction, is_publish, with_dup

if TYPE_CHECKING:
    from tests.faults.path import WholePath

HopName = Literal["sensors", "uplink", "collector"]
"""Gateway to the sensors' broker, gateway to the central broker, collector to the central broker."""
HOPS: tuple[HopName, ...] = ("sensors", "uplink", "collector")
RESULT_HOPS: tuple[HopName, ...] = ("uplink", "collector")
DIRECTIONS: tuple[Direction, ...] = ("up", "down")


@dataclass(frozen=True, slots=True)
class Cut(Fault):
    """Connections end and nobody can connect."""

    hop: HopName
    name = "cut"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.05, 4.0), draw.choice((*HOPS, "uplink")))

    def inject(self, path: WholePath) -> str:
        return f"{path.hops[self.hop].cut()} connections cut"

    def heal(self, path: WholePath) -> None:
        path.hops[self.hop].mend()


@dataclass(frozen=True, slots=True)
class Flap(Fault):
    """The connection ends, and may come back at once."""

    hop: HopName
    name = "flap"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(0.0, draw.choice(HOPS))

    def inject(self, path: WholePath) -> str:
        return f"{path.hops[self.hop].cut(refuse=False)} connections cut"


@dataclass(frozen=True, slots=True)
class Stall(Fault):
    """One direction stands still; TCP keeps what is on its way."""

    hop: HopName
    direction: Direction
    name = "stall"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.2, 4.0), draw.choice(HOPS), draw.choice(DIRECTIONS))

    def inject(self, path: WholePath) -> str:
        path.hops[self.hop].stall(self.direction)
        return "stalled"

    def heal(self, path: WholePath) -> None:
        path.hops[self.hop].mend()


@dataclass(frozen=True, slots=True)
class Swallow(Fault):
    """One direction leads nowhere, as when a route is gone; in the end the connection breaks. So the sender had reason
    to think that it was heard: of acknowledgements to the sensors' broker, the messages come again with DUP."""

    hop: HopName
    direction: Direction
    name = "swallow"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.2, 3.0), draw.choice(HOPS), draw.choice(DIRECTIONS))

    def inject(self, path: WholePath) -> str:
        path.hops[self.hop].swallow(self.direction)
        return "swallowing"

    def heal(self, path: WholePath) -> None:
        path.hops[self.hop].cut()
        path.hops[self.hop].mend()


@dataclass(frozen=True, slots=True)
class Repeat(Fault):
    """Results and acknowledgements come twice, the second time with DUP and maybe later."""

    hop: HopName
    direction: Direction
    seed: int
    name = "repeat"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        hop = draw.choice(RESULT_HOPS)
        return cls(seconds(draw, 1.0, 5.0), hop, draw.choice(DIRECTIONS), draw.getrandbits(32))

    def inject(self, path: WholePath) -> str:
        draw = Random(self.seed)

        def how(packet: bytes) -> Sequence[tuple[float, bytes]]:
            if is_publish(packet) and draw.random() < 0.5:
                return (0.0, packet), (draw.choice((0.0, draw.uniform(0.0, 2.0))), with_dup(packet))
            return ((0.0, packet),)

        path.hops[self.hop].tamper(self.direction, how)
        return "repeating"

    def heal(self, path: WholePath) -> None:
        path.hops[self.hop].mend()


@dataclass(frozen=True, slots=True)
class Delay(Fault):
    """Results and acknowledgements overtake each other."""

    hop: HopName
    direction: Direction
    seed: int
    name = "delay"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        hop = draw.choice(RESULT_HOPS)
        return cls(seconds(draw, 1.0, 5.0), hop, draw.choice(DIRECTIONS), draw.getrandbits(32))

    def inject(self, path: WholePath) -> str:
        draw = Random(self.seed)

        def how(packet: bytes) -> Sequence[tuple[float, bytes]]:
            late = is_publish(packet) and draw.random() < 0.5
            return ((draw.uniform(0.05, 3.0) if late else 0.0, packet),)

        path.hops[self.hop].tamper(self.direction, how)
        return "delaying"

    def heal(self, path: WholePath) -> None:
        path.hops[self.hop].mend()
