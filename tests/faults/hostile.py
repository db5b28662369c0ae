"""A peer that means harm beside the honest gateway: at the central broker it may write whatever it likes.

With MACs it writes in the honest gateway's and the collector's name, too, numbers that might be true among them.
Without MACs it writes under its own name, and in theirs only what cannot be true: the rest is for the broker's access
rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, Self

import paho.mqtt.client as paho
import psutil

from benchmarks.hostile.attacks import ATTACKS, HOSTILE
from edgert.core.errors import PayloadError
from edgert.core.ids import make_epoch
from edgert.core.results.macs import split_untrusted
from edgert.core.results.results import (
    Acknowledgement,
    RowsBatch,
    acks_topic,
    pack_acknowledgement,
    pack_result,
    results_topic,
    unpack_acknowledgement_untrusted,
    unpack_result_untrusted,
)
from tests.central.results_examples import Gateway
from tests.faults.fault import NOTHING, Fault, seconds
from tests.faults.proxy import is_publish, publish_of
from tests.faults.publisher import FLOW
from tests.integration.rig import FLEET

if TYPE_CHECKING:
    from tests.faults.path import WholePath

HONEST: Final = "g1"
NEVER: Final = make_epoch(2**31 - 1, 1)
"""An epoch to which nobody comes."""
WITHIN_S: Final = 2.0
"""Seconds of the collector's CPU time in which it acknowledges an honest result: it does not depend on what else the
machine does."""
Stream = tuple[str, int, int]
Message = tuple[str, bytes]
"""(topic, payload)."""
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


@dataclass(slots=True)
class Peer:
    """The peer, and what is seen meanwhile of the honest gateway's results on their way."""

    sent: dict[Stream, int] = field(default_factory=dict)
    """The newest number of each stream that left the honest gateway."""
    floods: int = 0
    slowest_cpu_s: float = 0.0
    """The longest time from a result's leaving until its acknowledgement, in seconds of the collector's CPU."""
    acknowledged: int = 0
    """Results of which that was seen."""
    _waiting: dict[tuple[Stream, int], tuple[int, float]] = field(default_factory=dict)
    """(stream, number) → (process of the collector, its CPU time when the result left)."""
    _clients: list[paho.Client] = field(default_factory=list)

    def watch(self, path: WholePath) -> None:
        """The honest gateway's results where they leave it, and acknowledgements where they leave the collector: none
        of them is forged."""
        path.hops["uplink"].watch("up", lambda packet: self._left(packet, path))
        path.hops["collector"].watch("up", lambda packet: self._acknowledged(packet, path))

    def send(self, port: int, messages: list[Message]) -> None:
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)  # type: ignore[attr-defined]
        client.max_inflight_messages_set(1_000)
        client.connect("127.0.0.1", port)
        client.loop_start()
        self._clients.append(client)
        for topic, payload in messages:
            client.publish(topic, payload, qos=1)
        self.floods += 1

    def close(self) -> None:
        for client in self._clients:
            client.disconnect()
            client.loop_stop()

    def problems(self) -> list[str]:
        """Of a seed that is over."""
        if not self.floods or not self.acknowledged:
            return [f"{self.floods} floods and {self.acknowledged} acknowledgements: the seed shows nothing"]
        if self.slowest_cpu_s > WITHIN_S:
            return [f"an acknowledgement came after {self.slowest_cpu_s:.2f} s of the collector's CPU time"]
        return []

    # -- on the loop of the hops

    def _left(self, packet: bytes, path: WholePath) -> None:
        if not is_publish(packet) or b"/@results/" not in packet[:100]:
            return
        result = unpack_result_untrusted(_payload(packet, path.has_macs))
        if isinstance(result, RowsBatch) and result.gateway == HONEST:
            stream = result.flow, result.epoch, result.stream
            self.sent[stream] = max(result.sequence, self.sent.get(stream, 0))
            self._waiting[stream, result.sequence] = _cpu(path)

    def _acknowledged(self, packet: bytes, path: WholePath) -> None:
        if not is_publish(packet) or f"/@acks/{HONEST}".encode() not in packet[:100]:
            return
        with suppress(PayloadError):
            found = unpack_acknowledgement_untrusted(_payload(packet, path.has_macs))
            process, cpu_s = _cpu(path)
            for stream, number in [w for w in self._waiting if w[1] <= found.acks.get(w[0], 0)]:
                of, since = self._waiting.pop((stream, number))
                if of == process:
                    self.slowest_cpu_s = max(self.slowest_cpu_s, cpu_s - since)
                    self.acknowledged += 1


def _payload(packet: bytes, has_macs: bool) -> bytes:
    payload = publish_of(packet).payload
    return split_untrusted(payload)[1] if has_macs else payload


def _cpu(path: WholePath) -> tuple[int, float]:
    """(process of the collector, its CPU time in s); (0, 0.0) while there is none."""
    process: Any = path.program("collector").process
    with suppress(psutil.Error):
        if process is not None:
            times = psutil.Process(process.pid).cpu_times()
            return process.pid, times.user + times.system
    return 0, 0.0
