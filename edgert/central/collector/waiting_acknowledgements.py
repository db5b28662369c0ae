"""Acknowledgements that wait to be published, of each gateway, and cut to the size that the broker takes.

A message carries streams of some flows. Several messages say the same as one: each names streams that have landed, and
no gateway draws a conclusion from a stream that is missing, unless the message answers a hello of that flow. So all
that an answer names is in one message. The messages carry a MAC each.

What cannot be said to one gateway holds up no other: each gets one message in its turn.
"""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from edgert.central.collector.collector import MOST_FLOWS
from edgert.central.collector.known_gateway import MOST_NEWS, GatewayCounters
from edgert.core.clock import Clock
from edgert.core.log_sampling import LogSampling
from edgert.core.packing import pack
from edgert.core.results.results import MOST_STREAMS, Acknowledgement, pack_acknowledgement

log = logging.getLogger("edgert.central.collector")
MOST_PAYLOAD_BYTES: Final = 128 * 1024
"""The largest message, also where the broker takes more: a gateway takes 1 MiB, and others wait meanwhile."""
MOST_ENTRIES: Final = MOST_FLOWS * (MOST_STREAMS + 1) + MOST_NEWS
"""Streams and answers of one gateway that wait: one call of the collector makes no more. Each has at most 90 bytes in a
message, since a flow's name has 63 at most."""
MOST_ENTRIES_IN_ALL: Final = 200_000
"""The most entries of all gateways, some 50 MB. Beyond, what waits for the gateway whose turn is next is dropped."""
MOST_FAILURES: Final = 20
"""After so many messages in a row that were not sent, nothing can be sent now."""
_ANSWER_BYTES: Final = 2 + 2 + 18
"""Bytes of an answer beside the flow's name, which stands there twice: two headers and the token, at most."""
_HEADER_BYTES: Final = 24
"""Bytes that a message without streams and answers lacks: the key of the tokens, and three longer headers."""


FlowStreams = dict[tuple[int, int], int]
"""Streams of one flow: (epoch, stream) -> sequence."""


@dataclass(slots=True)
class _Waiting:
    collector: str
    flows: OrderedDict[str, FlowStreams] = field(default_factory=OrderedDict)
    """A flow with an answer stands here, too, even without a stream."""
    answers: dict[str, bytes] = field(default_factory=dict)
    """Flow -> token of the hello, which may be empty."""
    entries: int = 0

    def add(self, a: Acknowledgement, most: int) -> int:
        """Adds what is to be said: of each flow all or nothing. Returns how many entries there was no room for."""
        flows: dict[str, FlowStreams] = {flow: {} for flow in a.answers}
        for (flow, epoch, stream), sequence in a.acks.items():
            flows.setdefault(flow, {})[epoch, stream] = sequence
        answers, left_out = {flow: a.tokens.get(flow, b"") for flow in a.answers}, 0
        for flow, streams in flows.items():
            known = self.flows.get(flow, {})
            more = len(streams.keys() - known.keys()) + (flow in answers and flow not in self.answers)
            if self.entries + more > most:
                left_out += more
                continue
            self.entries += more
            self.flows[flow] = known | streams
            if flow in answers:
                self.answers[flow] = answers[flow]
        return left_out

    def first(self) -> tuple[str, FlowStreams, bytes | None]:
        """Returns what has to be in one message: an answer with all streams of its flow, or one stream."""
        flow, streams = next(iter(self.flows.items()))
        if flow in self.answers:
            return flow, dict(streams), self.answers[flow]
        stream = next(reversed(streams))
        return flow, {stream: streams[stream]}, None

    def remove(self, flow: str, streams: Iterable[tuple[int, int]], answered: bool) -> None:
        for stream in streams:
            del self.flows[flow][stream]
            self.entries -= 1
        if answered:
            del self.answers[flow]
            self.entries -= 1
        if not self.flows[flow] and flow not in self.answers:
            del self.flows[flow]


class WaitingAcknowledgements:
    """Not for more than one thread. `room`: bytes of the largest message for a gateway; None: the broker takes none for
    it now. `publish` returns False for a message that is not sent."""

    def __init__(
        self,
        room: Callable[[str], int | None],
        publish: Callable[[str, bytes], bool],
        counters: GatewayCounters,
        clock: Clock,
        *,
        most_entries: int = MOST_ENTRIES,
        most_in_all: int = MOST_ENTRIES_IN_ALL,
    ) -> None:
        self._room, self._publish = room, publish
        self._counters, self._clock, self._sampling = counters, clock, LogSampling()
        self._most_entries, self._most_in_all = most_entries, most_in_all
        self._waiting: dict[str, _Waiting] = {}
        """Entries that wait, by gateway, in the order of their turns."""
        self._entries = 0

    def __len__(self) -> int:
        """Gateways that something waits for."""
        return len(self._waiting)

    def keep(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        """Takes acknowledgements; of what is said twice the newer one counts."""
        for a in acknowledgements:
            waiting = self._waiting.get(a.gateway) or _Waiting(a.collector)
            self._entries -= waiting.entries
            left_out = waiting.add(a, self._most_entries)
            if left_out:
                self._drop(a.gateway, left_out, "too much waits to be acknowledged: is the broker reached?")
            self._put(a.gateway, waiting)
        while self._entries > self._most_in_all:
            gateway = next(iter(self._waiting))
            gone = self._waiting.pop(gateway).entries
            self._entries -= gone
            self._drop(gateway, gone, "too much waits to be acknowledged to all gateways: is the broker reached?")

    def forget(self, gateways: Collection[str]) -> None:
        """Drops what waits for these gateways."""
        for gateway in gateways:
            if waiting := self._waiting.pop(gateway, None):
                self._entries -= waiting.entries

    def say(self) -> None:
        """Publishes one message for each gateway in turn, until all is said or nothing can be sent."""
        turns, failures = deque(self._waiting), 0
        while turns and failures < MOST_FAILURES:
            gateway = turns.popleft()
            room = self._room(gateway)
            if room is None:
                continue
            waiting = self._waiting.pop(gateway)  # to the end
            self._entries -= waiting.entries
            said = self._take(gateway, waiting, min(room, MOST_PAYLOAD_BYTES))
            if said is not None and not self._publish(gateway, pack_acknowledgement(said)):
                waiting.add(said, sys.maxsize)
                failures += 1
            else:
                failures = 0
                if waiting.entries:
                    turns.append(gateway)
            self._put(gateway, waiting)

    def _put(self, gateway: str, waiting: _Waiting) -> None:
        """Keeps what waits, if anything: in its place, or as the last one."""
        if waiting.entries:
            self._waiting[gateway] = waiting
            self._entries += waiting.entries

    def _take(self, gateway: str, waiting: _Waiting, room: int) -> Acknowledgement | None:
        """Takes the next message of a gateway; None if nothing fits. What does not even fit alone is dropped."""
        empty = Acknowledgement(gateway=gateway, collector=waiting.collector, acks={})
        most = left = room - len(pack_acknowledgement(empty)) - _HEADER_BYTES
        acks: dict[tuple[str, int, int], int] = {}
        tokens: dict[str, bytes] = {}
        while waiting.entries:
            flow, streams, token = waiting.first()
            named = {(flow, *stream): sequence for stream, sequence in streams.items()}
            size = sum(len(pack((*key, sequence))) for key, sequence in named.items())
            size += 0 if token is None else 2 * len(flow.encode()) + _ANSWER_BYTES
            if size <= left:
                left -= size
                acks |= named
                tokens |= {} if token is None else {flow: token}
                waiting.remove(flow, streams, token is not None)
            elif size <= most:
                break
            else:
                self._too_large(gateway, flow, token is not None, size + room - most, room)
                waiting.remove(flow, streams if token is None else (), token is not None)
        if not acks and not tokens:
            return None
        with_token = {flow: token for flow, token in tokens.items() if token}
        return replace(empty, acks=acks, answers=tuple(tokens), tokens=with_token)

    def _too_large(self, gateway: str, flow: str, answer: bool, size: int, room: int) -> None:
        self._drop(
            gateway, 1,
            f"{'an answer about' if answer else 'a stream of'} flow {flow} takes {size} bytes in a message, and the "
            f"broker takes {room}: raise its limit (of Mosquitto: max_packet_size)",
        )  # fmt: skip

    def _drop(self, gateway: str, entries: int, why: str) -> None:
        self._counters.unsaid += entries
        self._counters.newest_unsaid = f"gateway {gateway}: {why}"
        now = self._clock.monotonic()
        if first := self._sampling.note(gateway, entries, why, now):
            log.error("gateway %s is not told all that has landed: %s", gateway, first)
        for again, count, seconds, newest in self._sampling.due(now):
            log.error("gateway %s: %d streams more in %.0f s; the newest: %s", again, count, seconds, newest)
