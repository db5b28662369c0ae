"""What the collector does with messages, apart from MQTT: take results in order, land them, say what was landed.

One thread calls `handle` with what was gathered. What `handle` returns is published after the commit, never before.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from edgert.central.acceptance import Acceptance, Key, Verdict
from edgert.central.inbox import Message
from edgert.central.landing import Batch, Landing, Report, key_of
from edgert.central.tables import Conflict, TableError
from edgert.core.clock import Clock
from edgert.core.errors import PayloadError, show
from edgert.core.results import Acknowledgement, Hello, Result, unpack_result_untrusted

log = logging.getLogger("edgert.central.collector")
_JUNK_PER_CALL: Final = 20
"""Messages without a number that one call keeps for people to look at; the others are only counted."""
_STREAMS_PER_FLOW: Final = 64
"""Streams of one gateway's flow that an acknowledgement names at most, those of the greatest epochs."""


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
    held: int = 0
    expired: int = 0
    not_held: int = 0
    failures: int = 0
    last_error: str = ""

    def plain(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)


@dataclass(slots=True)
class _Gateway:
    acks: dict[tuple[str, int, int], int] = field(default_factory=dict)
    answers: set[str] = field(default_factory=set)


class Collector:
    """Not for more than one thread. `hold_bytes` bounds what waits behind a gap."""

    def __init__(self, name: str, landing: Landing, clock: Clock, hold_s: float, hold_bytes: int) -> None:
        self._name = name
        self._landing = landing
        self._clock = clock
        self._acceptance: Acceptance[Batch] = Acceptance(hold_s, hold_bytes)
        self._gateways: dict[str, _Gateway] = {}
        self._touched: set[str] = set()
        self._landed: dict[Key, int] = {}
        """What the tables hold for sure; `_acceptance` runs ahead of it."""
        self._unlanded: list[Batch] = []
        self._waiting: deque[Message] = deque()
        self._junk: list[tuple[str, bytes, str]] = []
        self.counters = Counters()

    def handle(self, messages: Sequence[Message]) -> list[Acknowledgement]:
        """Take messages, commit what is in order, and return what to publish.

        Never raises for what messages or tables are: a table that cannot be read or written is told in
        `counters.last_error`, and what waits for it is tried again with the next call.
        """
        self._waiting.extend(messages)
        try:
            while self._waiting:
                self._take(self._waiting[0])
                self._waiting.popleft()
                self.counters.messages += 1
            self._keep_junk()
            self.counters.expired += self._acceptance.expire(self._clock.monotonic())
            self.counters.held = self._acceptance.held_items
            self._land()
            self.counters.last_error = ""
        except (TableError, Conflict) as error:
            self._failed(error)
        return self._acknowledgements()

    @property
    def waits(self) -> bool:
        """Whether there is something that a table did not take yet."""
        return bool(self._unlanded or self._waiting or self._junk)

    def _take(self, message: Message) -> None:
        try:
            result = unpack_result_untrusted(message.payload)
            _check_topic(message.topic, result)
        except PayloadError as error:
            self._malformed(message, str(error))
            return
        self._meet(result.gateway)
        if isinstance(result, Hello):
            self._gateways[result.gateway].answers.add(result.flow)
            self._touched.add(result.gateway)
        else:
            self._offer(result, len(message.payload))

    def _offer(self, batch: Batch, size: int) -> None:
        key = key_of(batch)
        # Stream 0 says whether the epoch was opened.
        for stream in (key, (*key[:3], 0)):
            if not self._acceptance.knows(stream):
                self._landed[stream] = self._landing.version(stream)
                self._acceptance.learn(stream, self._landed[stream])
        verdict = self._acceptance.offer(key, batch.sequence, batch, size, self._clock.monotonic())
        if verdict is Verdict.DUPLICATE:
            self.counters.duplicates += 1
            self._touch(key)
        elif verdict is Verdict.FULL:
            self.counters.not_held += 1

    def _land(self) -> None:
        self._unlanded += self._acceptance.take()
        if not self._unlanded:
            return
        report = self._landing.land(self._unlanded)
        lost = {key_of(b) for b in self._unlanded if b.sequence > report.versions[key_of(b)]}
        self._unlanded.clear()
        for key, version in report.versions.items():
            self._landed[key] = version
            self._touch(key)
        for key in lost:
            # The tables hold less than they did (a restored copy?): the outbox has to send again from there.
            self._acceptance.forget(key)
        self._count(report)

    def _keep_junk(self) -> None:
        if self._junk:
            self._landing.quarantine_payloads(self._junk)
            self._junk.clear()

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

    def _malformed(self, message: Message, reason: str) -> None:
        self.counters.malformed += 1
        if len(self._junk) < _JUNK_PER_CALL:
            self._junk.append((message.topic, message.payload, reason))
            log.warning("to quarantine: %s: %s", message.topic, reason)

    def _meet(self, gateway: str) -> None:
        """At first sight of a gateway, its acknowledgement is what the tables say."""
        if gateway in self._gateways:
            return
        known = self._landing.known(gateway)
        self._gateways[gateway] = _Gateway({key[1:]: version for key, version in known.items()})

    def _touch(self, key: Key) -> None:
        gateway, flow, epoch, stream = key
        acks = self._gateways[gateway].acks
        if self._landed[key]:
            acks[(flow, epoch, stream)] = self._landed[key]
        of_flow = sorted(k for k in acks if k[0] == flow)
        for old in of_flow[:-_STREAMS_PER_FLOW]:
            del acks[old]
        self._touched.add(gateway)

    def _acknowledgements(self) -> list[Acknowledgement]:
        made = []
        for name in sorted(self._touched):
            gateway = self._gateways[name]
            answers = tuple(sorted(gateway.answers))
            gateway.answers.clear()
            made.append(Acknowledgement(gateway=name, collector=self._name, acks=dict(gateway.acks), answers=answers))
        self._touched.clear()
        return made


def _check_topic(topic: str, result: Result) -> None:
    """A broker lets a gateway publish under its own name only; so the topic says who speaks, not the payload."""
    if topic.split("/")[-2:] != [result.gateway, result.flow]:
        raise PayloadError(f"expected a result of {topic}, got one of {result.gateway}/{result.flow}: {show(result)}")
