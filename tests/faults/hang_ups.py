"""Brokers that hang up at a message: at one of a kind, or at all that are too large for them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Self

from tests.faults.fault import Fault
from tests.proxy import is_publish

if TYPE_CHECKING:
    from tests.faults.path import WholePath

LIMITS = (1_100, 1_500, 2_500)
"""Bytes at which the central broker hangs up. Below 1,024 the gateway takes it for another reason than the size."""


@dataclass(frozen=True, slots=True)
class HangUp(Fault):
    """The next messages are such that the sensors' broker hangs up when the flow gives them out: the hop to it ends all
    connections at each of them, from the start of the seed to its end."""

    messages: int
    name = "hang up at a message"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(0.0, draw.choice((1, 1, 2)))

    def inject(self, path: WholePath) -> str:
        path.publisher.poison += self.messages
        return f"{self.messages} messages to come"


@dataclass(frozen=True, slots=True)
class HangUpAtLarge(Fault):
    """The central broker hangs up at packets of the gateway above a limit of which it does not say, from now on."""

    limit: int
    name = "hang up at large results"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(0.0, draw.choice(LIMITS))

    def inject(self, path: WholePath) -> str:
        path.hops["uplink"].hang_up("up", lambda packet: is_publish(packet) and len(packet) > self.limit)
        return f"above {self.limit:,} bytes"
