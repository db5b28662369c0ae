"""What the collector does with messages, apart from MQTT: take results in order, land them, say what was landed.

One thread calls `handle` with what was gathered. What `handle` returns is published after the commit, never before.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from edgert.central.acceptance import MOST_STREAMS, Acceptance, Key, Verdict
from edgert.central.frames import Batch
from edgert.central.inbox import Message
from edgert.central.landing import Landing, Report, key_of
from edgert.central.lease import LeaseLost
from edgert.central.reassembly import Reassembly
from edgert.central.recent import Recent
from edgert.central.tables import Conflict, TableError
from edgert.central.troubles import Troubles
from edgert.core.clock import Clock
from edgert.core.compression import expanded_size
from edgert.core.errors import EdgertError, PayloadError, show
from edgert.core.pieces import Piece
from edgert.core.results import MOST_STREAMS as MOST_STREAMS_OF_EPOCH
from edgert.core.results import Acknowledgement, Hello, Result, unpack_result_untrusted

log = logging.getLogger("edgert.central.collector")
_JUNK_PER_CALL: Final = 20
"""Messages without a number that one call keeps for people to look at; the others are only counted."""
_LAND_BYTES: Final = 32 << 20
"""What was taken, in bytes before compression, is landed when it is so much: a small message may have much in it."""
_STREAMS_PER_FLOW: Final = 64
"""Streams of one gateway's flow that an acknowledgement names at most, those of the greatest epochs."""
_STREAMS_PER_GATEWAY: Final = 4_096
"""As many at most in all; each flow has at least those of its greatest epoch, from which a new card goes on."""
MOST_FLOWS: Final = 1_000
"""Flows, so landing tables, that one gateway may have."""
MOST_GATEWAYS: Final = 20_000
"""Gateways known at a time. One more makes the longest silent be learned anew."""


@dataclass(slots=True)
class Counters:
    """What the collector did since its start."""

    messages: int = 0
    rows: int = 0
    commits: int = 0
    refused_rows: int = 0
    refused_batches: int = 0
    gaps: int = 0
    duplicates: int = 0
    malformed: int = 0
    malformed_not_kept: int = 0
    """Of these: how many are not in quarantine, and will not be."""
    held: int = 0
    expired: int = 0
    not_held: int = 0
    broken_results: int = 0
    """Results in pieces of which one did not come: their gateways send them again."""
    refused_flows: int = 0
    failures: int = 0
    stuck_flows: int = 0
    """Now: flows whose landing table cannot be used."""
    last_error: str = ""

    def plain(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)


@dataclass(slots=True)
class _Gateway:
    partition: str = ""
    """As the topic of its last result says."""
    acks: dict[str, dict[tuple[int, int], int]] = field(default_factory=dict)
    """Flow -> (epoch, stream) -> sequence."""
    news: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """(flow, epoch, stream) -> sequence: what is told once, however old its epoch: what landed or was asked for."""
    flows: set[str] = field(default_factory=set)
    answers: set[str] = field(default_factory=set)
    refused: bool = False

    def note(self, known: dict[Key, int]) -> None:
        """What the tables hold of this gateway."""
        for (_, flow, epoch, stream), version in known.items():
            self.acknowledge(flow, epoch, stream, version)
            self.flows.add(flow)

    def tell(self, flow: str, epoch: int, stream: int, version: int) -> None:
        """As `acknowledge`, and the next acknowledgement names it in any case, if these are not too many already."""
        self.acknowledge(flow, epoch, stream, version)
        if len(self.news) < _STREAMS_PER_GATEWAY:
            self.news[(flow, epoch, stream)] = version

    def acknowledge(self, flow: str, epoch: int, stream: int, version: int) -> None:
        """A stream is in the tables up to `version`; of too many those of the oldest epochs are named no more."""
        acks = self.acks.setdefault(flow, {})
        acks[(epoch, stream)] = version
        most = min(_STREAMS_PER_FLOW, max(MOST_STREAMS_OF_EPOCH, _STREAMS_PER_GATEWAY // len(self.acks)))
        for old in sorted(acks)[:-most]:
            del acks[old]


class Collector:
    """Not for more than one thread. `hold_bytes` bounds what waits behind a gap, the `most_`s what names make grow."""

    def __init__(
        self,
        name: str,
        landing: Landing,
        clock: Clock,
        hold_s: float,
        hold_bytes: int,
        *,
        most_streams: int = MOST_STREAMS,
        most_gateways: int = MOST_GATEWAYS,
        most_flows: int = MOST_FLOWS,
    ) -> None:
        self._name = name
        self._landing = landing
        self._clock = clock
        self._acceptance: Acceptance[Batch] = Acceptance(hold_s, hold_bytes, most_streams)
        self._gateways: Recent[str, _Gateway] = Recent(most_gateways)
        self._most_flows = most_flows
        self._touched: set[str] = set()
        self._landed: Recent[Key, int] = Recent(most_streams)
        """What the tables hold for sure; `_acceptance` runs ahead of it."""
        self._unlanded: list[Batch] = []
        self._taken_bytes = 0
        """Of results since the last call of the landing, before compression."""
        self._waiting: deque[Message] = deque()
        self._pieces = Reassembly()
        self._troubles = Troubles()
        self._junk: list[tuple[str, bytes, str]] = []
        self._junk_waits = ""
        """Why `_junk` could not be kept."""
        self.counters = Counters()

    def handle(self, messages: Sequence[Message]) -> list[Acknowledgement]:
        """Take messages, commit what is in order, and return what to publish.

        Never raises for what messages or tables are: a table that cannot be read or written is told in
        `counters.last_error`, and what waits for it is tried again with the next call.
        """
        self._waiting.extendleft(reversed(self._troubles.retry(self._clock.monotonic())))
        self._waiting.extend(messages)
        try:
            while self._waiting:
                self._take_untrusted(self._waiting[0])
                self._waiting.popleft()
                self.counters.messages += 1
                if self._taken_bytes >= _LAND_BYTES:
                    self._land()
            self._expire()
            self.counters.held = self._acceptance.held_items
            self._land()
            for flow in self._troubles.over(self._clock.monotonic()):
                log.info("flow %s: nothing waits for its table any more", flow)
            self._keep_junk()
            self.counters.last_error = "; ".join(filter(None, (str(self._troubles), self._junk_waits)))
        except LeaseLost:
            pass  # what is not ours any more is forgotten before the next call
        except (TableError, Conflict) as error:
            self._failed(error)
        except Exception as error:
            # A fault of ours: whatever it is, results of others must not wait until somebody starts this again.
            log.exception("results could not be handled; trying again")
            self._failed(error)
        self.counters.stuck_flows = len(self._troubles)
        return self._acknowledgements()

    def forget(self, partitions: Collection[str]) -> set[str]:
        """Drop all that is known of the gateways of some partitions, and their results that have not landed.

        To be called when partitions go to another collector or come from one. Returns the gateways.
        """
        gone = {name for name in self._gateways if self._gateways[name].partition in partitions}
        for name in gone:
            self._gateways.pop(name)
        self._touched -= gone
        self._waiting = deque(m for m in self._waiting if partition_of_topic(m.topic) not in partitions)
        self._troubles.forget(lambda message: partition_of_topic(message.topic) in partitions)
        # What was taken but did not come to be landed goes, too: it is sent again.
        self._unlanded = [b for b in (*self._unlanded, *self._acceptance.take()) if b.gateway not in gone]
        self._acceptance.forget_gateways(gone)
        for key in [key for key in self._landed if key[0] in gone]:
            self._landed.pop(key)
        self._landing.look_anew()
        return gone

    @property
    def waits(self) -> bool:
        """Whether there is something that a table did not take yet, of flows that do not rest."""
        return bool(self._waiting or any(not self._troubles.rests(b.flow) for b in self._unlanded))

    def _take_untrusted(self, message: Message) -> None:
        """Whatever is wrong with one message, others are taken."""
        try:
            result = _read_untrusted(message)
            if isinstance(result, Piece):
                payload = self._pieces.add(result)
                self.counters.broken_results = self._pieces.broken
                if payload is None:
                    return
                # instead of the last piece, should it have to be taken once more
                self._waiting[0] = message = Message(message.topic, payload)
                result = _read_untrusted(message)
                if isinstance(result, Piece):
                    raise PayloadError("expected a result in pieces, got pieces of a piece")
            if not self._troubles.rests(result.flow):
                self._take(message, result)
                self._troubles.worked(result.flow)
                return
        except PayloadError as error:
            self._malformed(message, str(error))
            return
        except TableError as error:
            if not self._landing.is_fault_of(result.flow, error):
                raise
            self._trouble(result.flow, str(error))
        except EdgertError:
            raise
        except Exception as error:
            log.exception("a message could not be taken")
            self._malformed(message, f"could not be taken: {error!r}")
            return
        if not self._troubles.keep(result.flow, message):
            self.counters.not_held += 1

    def _take(self, message: Message, result: Result) -> None:
        gateway = self._meet(result.gateway, result.flow)
        gateway.partition = partition_of_topic(message.topic)
        if isinstance(result, Hello):
            acks = gateway.acks.get(result.flow, {})  # none: a flow that another collector took, for example
            unknown = [epoch for epoch in result.epochs if not acks.get((epoch, 0))]
            if unknown or not acks:
                of_flow = self._landing.of_flow(result.gateway, result.flow, unknown)
                gateway.flows.update(flow for _, flow, _, _ in of_flow)
                for (_, flow, epoch, stream), version in of_flow.items():
                    gateway.tell(flow, epoch, stream, version)
            if self._has_room(gateway.answers, gateway, result):
                gateway.answers.add(result.flow)
                self._touched.add(result.gateway)
        elif self._has_room(gateway.flows, gateway, result):
            gateway.flows.add(result.flow)
            self._offer(result, expanded_size(message.payload))

    def _has_room(self, flows: set[str], gateway: _Gateway, result: Result) -> bool:
        """Whether a result's flow is one of `flows`, or one more is allowed. Else it is counted, and said once."""
        if result.flow in flows or len(flows) < self._most_flows:
            return True
        self.counters.refused_flows += 1
        if not gateway.refused:
            log.error(
                "gateway %s: expected at most %d flows: %s is refused", result.gateway, self._most_flows, result.flow
            )
        gateway.refused = True
        return False

    def _offer(self, batch: Batch, size: int) -> None:
        key = key_of(batch)
        # Stream 0 says whether the epoch was opened.
        for stream in (key, (*key[:3], 0)):
            if not self._acceptance.knows(stream):
                version = self._landing.version(stream)
                self._landed.set(stream, version)
                self._acceptance.learn(stream, version)
        self._taken_bytes += size
        verdict = self._acceptance.offer(key, batch.sequence, batch, size, self._clock.monotonic(), batch.first)
        if verdict is Verdict.DUPLICATE:
            self.counters.duplicates += 1
            self._touch(key)
        elif verdict is Verdict.FULL:
            self.counters.not_held += 1

    def _land(self) -> None:
        self._unlanded += self._acceptance.take()
        report = self._landing.land([b for b in self._unlanded if not self._troubles.rests(b.flow)])
        self._taken_bytes = 0
        for flow, why in report.failed.items():
            self._trouble(flow, why)
        landed = [b for b in self._unlanded if not self._troubles.rests(b.flow)]
        for flow in {b.flow for b in landed}:
            self._troubles.worked(flow)
        lost = {key_of(b) for b in landed if b.sequence > report.versions[key_of(b)]}
        self._unlanded = [b for b in self._unlanded if self._troubles.rests(b.flow)]
        for key, version in report.versions.items():
            self._landed.set(key, version)
        for key in lost:
            # The tables hold less than they did (a restored copy?): the outbox has to send again from there.
            self._acceptance.forget(key)
        self._count(report)
        for key in report.versions:
            self._touch(key)

    def _expire(self) -> None:
        """Drop what was held too long."""
        if expired := self._acceptance.expire(self._clock.monotonic()):
            self.counters.expired += expired
            log.warning(
                "%d results after a missing one were dropped: their gateway sends again, or says why not", expired
            )

    def _keep_junk(self) -> None:
        """What cannot be kept is tried again with the next call. No result waits for it."""
        try:
            if self._junk:
                self._landing.quarantine_payloads(self._junk)
                self._junk.clear()
            self._junk_waits = ""
        except (TableError, Conflict) as error:
            self.counters.failures += 1
            if str(error) != self._junk_waits:
                log.error("malformed messages cannot be kept, results go on: %s", error)
            self._junk_waits = str(error)

    def _count(self, report: Report) -> None:
        c = self.counters
        c.rows += report.rows
        c.commits += report.commits
        c.refused_rows += report.refused_rows
        c.refused_batches += report.refused_batches
        c.gaps += report.gaps
        for reason in report.reasons[:3]:
            log.warning("to quarantine: %s", reason)

    def _failed(self, error: Exception) -> None:
        self.counters.failures += 1
        if self.counters.last_error != str(error):
            log.error("results wait: %s", error)
        self.counters.last_error = str(error)

    def _trouble(self, flow: str, why: str) -> None:
        """The table of one flow cannot be used."""
        self.counters.failures += 1
        if self._troubles.failed(flow, why, self._clock.monotonic()):
            log.error("results of flow %s wait, others go on: %s", flow, why)

    def _malformed(self, message: Message, reason: str) -> None:
        self.counters.malformed += 1
        if len(self._junk) < _JUNK_PER_CALL:
            self._junk.append((message.topic, message.payload, reason))
            log.warning("to quarantine: %s: %s", message.topic, reason)
        else:
            self.counters.malformed_not_kept += 1

    def _meet(self, name: str, flow: str) -> _Gateway:
        """At first sight of a gateway, its acknowledgement is what the tables say."""
        gateway = self._gateways.get(name)
        if gateway is None:
            gateway = _Gateway()
            gateway.note(self._landing.known(name, flow))
            for old, _ in self._gateways.set(name, gateway):
                self._touched.discard(old)
        return gateway

    def _touch(self, key: Key) -> None:
        name, flow, epoch, stream = key
        gateway = self._meet(name, flow)
        landed = self._landed.get(key)
        if landed is None:
            landed = self._landing.version(key)
            self._landed.set(key, landed)
        if landed:
            gateway.tell(flow, epoch, stream, landed)
        self._touched.add(name)

    def _acknowledgements(self) -> list[Acknowledgement]:
        made = []
        for name in sorted(self._touched):
            gateway = self._gateways.get(name)
            if gateway is None:
                continue
            answers = tuple(sorted(gateway.answers))
            gateway.answers.clear()
            acks = {(flow, *stream): n for flow, streams in gateway.acks.items() for stream, n in streams.items()}
            acks |= gateway.news
            gateway.news = {}
            made.append(Acknowledgement(gateway=name, collector=self._name, acks=acks, answers=answers))
        self._touched.clear()
        return made


def partition_of_topic(topic: str) -> str:
    """The partition that a result was published to: edgert/v1/<fleet>/@results/<partition>/<gateway>/<flow>."""
    return topic.rsplit("/", 3)[-3] if topic.count("/") >= 3 else ""


def _read_untrusted(message: Message) -> Result | Piece:
    result = unpack_result_untrusted(message.payload)
    _check_topic(message.topic, result)
    return result


def _check_topic(topic: str, result: Result | Piece) -> None:
    """A broker lets a gateway publish under its own name only; so the topic says who speaks, not the payload."""
    if topic.split("/")[-2:] != [result.gateway, result.flow]:
        raise PayloadError(f"expected a result of {topic}, got one of {result.gateway}/{result.flow}: {show(result)}")
