"""A peer that means harm beside the honest gateway: at the central broker it may write whatever it likes.

With MACs it writes in the honest gateway's and the collector's name, too, numbers that might be true among them.
Without MACs it writes under its own name, and in theirs only what cannot be true: the rest is for the broker's access
rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, Self

from benchmarks.hostile.attacks import ATTACKS, HOSTILE
from edgert.core.ids import make_epoch
from edgert.core.results.results import (
    Acknowledgement,
    acks_topic,
    pack_acknowledgement,
    pack_result,
    results_topic,
)
from tests.central.results_examples import Gateway
from tests.faults.fault import NOTHING, Fault, seconds
from tests.faults.peer import HONEST, Message, Stream
from tests.faults.publisher import FLOW
from tests.integration.rig import FLEET

if TYPE_CHECKING:
    from tests.faults.path import WholePath

NEVER: Final = make_epoch(2**31 - 1, 1)
"""An epoch to which nobody comes."""
BY_NAME = {attack.__name__: attack for attack in ATTACKS}
FORGED: Final = ("forged openings", "forged acknowledgements")


@dataclass(frozen=True, slots=True)
class Flood(Fault):
    """All messages of one attack, as fast as the broker takes them."""

    what: str
    name = "flood"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 1.0, 3.0), draw.choice((*BY_NAME, *FORGED * 2)))

    def inject(self, path: WholePath) -> str:
        if not path.brokers["central"].running:
            return f"{NOTHING}the central broker is down"
        messages = list(self._messages(path))
        path.peer.send(path.brokers["central"].port, messages)
        return f"{self.what}: {len(messages):,} messages"

    def _messages(self, path: WholePath) -> Iterator[Message]:
        if self.what == "forged openings":
            return openings()
        if self.what == "forged acknowledgements":
            return acknowledgements(path.peer.sent if path.has_macs else {})
        return ((results_topic(FLEET, HOSTILE, flow), payload) for flow, payload in BY_NAME[self.what]())


def openings() -> Iterator[Message]:
    """In the honest gateway's name, of epochs and streams to which nobody comes."""
    for n in range(200):
        forged = Gateway(HONEST, NEVER - n * (1 << 20), flow=FLOW)
        yield results_topic(FLEET, HONEST, FLOW), pack_result(forged.open())


def acknowledgements(sent: Mapping[Stream, int]) -> Iterator[Message]:
    """In the collector's name: of epochs to which nobody comes, and of numbers that are just sent or soon will be."""
    for n in range(100):
        acks: dict[Stream, int] = {(FLOW, NEVER - n, 0): 1 + n, ("nonsense", 1 << 32, 0): n}
        acks |= {stream: number + n % 7 for stream, number in sent.items()}
        forged = Acknowledgement(gateway=HONEST, collector="evil", acks=acks, answers=(FLOW,) if sent else ())
        yield acks_topic(FLEET, HONEST), pack_acknowledgement(forged)
