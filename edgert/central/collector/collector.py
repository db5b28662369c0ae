"""The collector without MQTT: it takes results in order, lands them, and acknowledges what has landed.

One thread calls `handle` with what was gathered. What `handle` returns is published after the commit, never before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from edgert.central.collector.flow_backoff import FlowBackoff
from edgert.central.collector.inbox import ResultMessage
from edgert.central.collector.known_gateway import GatewayCounters, KnownGateway
from edgert.central.collector.messages import MOST_TOPIC, memory_of, partition_of_topic, read_untrusted
from edgert.central.collector.reassembly import Reassembly
from edgert.central.collector.turns import Turns
from edgert.central.landing.acceptance import MOST_STREAMS, Acceptance, SourceKey, Verdict
from edgert.central.landing.arrow_rows import KEPT_BYTES, KEPT_TEXT, LandingBatch
from edgert.central.landing.hourly_budget import HourlyBudget
from edgert.central.landing.landing import Landing
from edgert.central.landing.lru import LruCache
from edgert.central.landing.rounds import key_of
from edgert.central.tables.lease import LeaseLost
from edgert.central.tables.table import CommitConflict, TableError
from edgert.core.clock import Clock
from edgert.core.compression import expanded_size
from edgert.core.errors import EdgertError, PayloadError, show
from edgert.core.ids import MOST_ORDINAL, ORDINAL_STEP, epoch_ordinal, is_credible
from edgert.core.results.pieces import Piece
from edgert.core.results.results import Acknowledgement, EpochHello, Result

log = logging.getLogger("edgert.central.collector")
HANDLE_S: Final = 0.25
"""One call works about so long. The rest waits for the next call, after which acknowledgements are said."""
_TURN_S: Final = 0.05
"""Time for which messages of one gateway are taken before those of the next."""
OPENINGS_OF_FLOW: Final = 120
"""Epochs that a gateway may begin in one flow in an hour: each is an opening row, which all that land there read."""
OPENINGS_OF_GATEWAY: Final = 2_000
"""Epochs that a gateway may begin in all its flows in an hour: each of its flows twice."""
_JUNK_PER_CALL: Final = 20
"""Messages without a number that one call keeps for people to look at; the others are only counted."""
_LAND_BYTES: Final = 32 << 20
"""Bytes, before compression, that are taken before they are landed: a small message may hold much."""
MOST_FLOWS: Final = 1_000
"""Flows, so landing tables, that one gateway may have."""
MOST_GATEWAYS: Final = 20_000
"""Gateways known at a time. One more makes the longest silent be learned anew."""


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
        land_bytes: int = _LAND_BYTES,
    ) -> None:
        self._name = name
        self._landing = landing
        self._clock = clock
        self._acceptance: Acceptance[LandingBatch] = Acceptance(hold_s, hold_bytes, most_streams, memory_of)
        self.gateways: LruCache[str, KnownGateway] = LruCache(most_gateways)
        self._most_flows, self._land_bytes = most_flows, land_bytes
        self._touched: set[str] = set()
        self.landed: LruCache[SourceKey, int] = LruCache(most_streams)
        """Numbers that have certainly landed; `_acceptance` runs ahead of them."""
        self._unlanded: list[LandingBatch] = []
        self._taken_bytes = 0
        """Bytes of results since the last call of the landing, before compression."""
        self._turns = Turns()
        self.late = False
        """True if the last call ended since its time was over: the next one may follow at once."""
        self._left: set[str] = set()
        """Gateways of which something was taken that the landing did not come to."""
        self._openings_of_flow = HourlyBudget(OPENINGS_OF_FLOW, MOST_STREAMS)
        self._openings = HourlyBudget(OPENINGS_OF_GATEWAY)
        self._held_back = ""
        """The gateway of which that was said last."""
        self._pieces = Reassembly()
        self._backoff = FlowBackoff()
        self._junk: list[tuple[str, bytes, str]] = []
        self._junk_waits = ""
        """Why `_junk` could not be kept."""
        self.counters = GatewayCounters()

    def handle(self, messages: Sequence[ResultMessage]) -> list[Acknowledgement]:
        """Take messages, commit what is in order, and return what to publish.

        Never raises for what messages or tables are: a table that cannot be read or written is told in
        `counters.last_error`, and what waits for it is tried again with the next call.
        """
        for message in reversed(self._backoff.retry(self._clock.monotonic())):
            self._turns.put_back(message)
        for message in messages:
            self._turns.add(message)
        self.counters.not_held += self._turns.dropped
        self._turns.dropped, self.late = 0, False
        try:
            until = self._clock.monotonic() + HANDLE_S
            self._work(lambda: self._clock.monotonic() >= until)
            self._expire()
            self.counters.held = self._acceptance.held_items
            for flow in self._backoff.over(self._clock.monotonic()):
                log.info("flow %s: nothing waits for its table any more", flow)
            self._keep_junk()
            self.counters.last_error = "; ".join(filter(None, (str(self._backoff), self._junk_waits)))
        except LeaseLost:
            pass  # what is not ours any more is forgotten before the next call
        except (TableError, CommitConflict) as error:
            self._failed(error)
        except Exception as error:
            # A fault of ours: whatever it is, results of others must not wait until somebody starts this again.
            log.exception("results could not be handled; trying again")
            self._failed(error)
        self.counters.stuck_flows = len(self._backoff)
        return self._acknowledgements()

    def _work(self, enough: Callable[[], bool]) -> None:
        """Take and land what waits, the gateway that cost least first, until there is no more or it is enough."""
        if self._taken_bytes:
            self._land(enough)  # it failed in the last call: until it works, no more is taken, which memory would hold
        while True:
            for gateway in self._turns.order():
                if gateway not in self._left and (not self._take_turn(gateway) or enough()):
                    break  # however many more there are: what was taken lands, and answers are said
            self._land(enough)
            if not self._turns and not self._left:
                return
            if enough():
                self.late = True
                return

    def _take_turn(self, gateway: str) -> bool:
        """Take messages of one gateway for a while. False: what was taken has to be landed first."""
        begun = self._clock.monotonic()
        try:
            left = self._turns.quota(gateway)
            while left:
                late = self._taken_bytes >= self._land_bytes or self._clock.monotonic() - begun >= _TURN_S
                if late or (message := self._turns.take(gateway)) is None:
                    break
                duplicates = self.counters.duplicates
                self._take_untrusted(message)
                self.counters.messages += 1
                left -= self.counters.duplicates == duplicates  # one that came again lands nothing
        finally:
            self._turns.charge({gateway: self._clock.monotonic() - begun})
        return self._taken_bytes < self._land_bytes

    def forget(self, partitions: Collection[str]) -> set[str]:
        """Drop all that is known of the gateways of some partitions, and their results that have not landed.

        To be called when partitions go to another collector or come from one. Returns the gateways.
        """
        gone = {name for name in self.gateways if self.gateways[name].partition in partitions}
        for name in gone:
            self.gateways.pop(name)
        self._touched -= gone
        self._turns.keep(lambda message: partition_of_topic(message.topic) not in partitions)
        self._left -= gone
        self._backoff.forget(lambda message: partition_of_topic(message.topic) in partitions)
        # What was taken but did not come to be landed goes, too: it is sent again.
        self._unlanded = [b for b in (*self._unlanded, *self._acceptance.take()) if b.gateway not in gone]
        self._acceptance.forget_gateways(gone)
        for key in [key for key in self.landed if key[0] in gone]:
            self.landed.pop(key)
        self._landing.look_anew()
        return gone

    @property
    def waits(self) -> bool:
        """True if there is something that a table did not take yet, of flows that do not rest."""
        return bool(self._turns or any(not self._backoff.rests(b.flow) for b in self._unlanded))

    def _take_untrusted(self, message: ResultMessage) -> None:
        """Takes one message. A fault of one message delays no other; where a shared table fails, the message comes
        first in the next call."""
        try:
            result = read_untrusted(message)
            if isinstance(result, Piece):
                payload = self._pieces.add(result)
                self.counters.broken_results = self._pieces.broken
                if payload is None:
                    return
                # instead of the last piece, should it have to be taken once more
                message = ResultMessage(message.topic, payload)
                result = read_untrusted(message)
                if isinstance(result, Piece):
                    raise PayloadError("expected a result in pieces, got pieces of a piece")
            if not self._backoff.rests(result.flow):
                self._take(message, result)
                self._backoff.worked(result.flow)
                return
        except PayloadError as error:
            self._malformed(message, str(error))
            return
        except TableError as error:
            if not self._landing.is_fault_of(result.flow, error):
                self._turns.put_back(message)
                raise
            self._trouble(result.flow, str(error))
        except EdgertError:
            self._turns.put_back(message)
            raise
        except Exception as error:
            log.exception("a message could not be taken")
            self._malformed(message, f"could not be taken: {error!r}")
            return
        if not self._backoff.keep(result.flow, message):
            self.counters.not_held += 1

    def _take(self, message: ResultMessage, result: Result) -> None:
        gateway = self._meet(result.gateway, result.flow)
        gateway.partition = partition_of_topic(message.topic)
        if isinstance(result, EpochHello):
            acks = gateway.acks.get(result.flow, {})  # none: a flow that another collector took, for example
            unknown = [epoch for epoch in result.epochs if not acks.get((epoch, 0))]
            found: dict[SourceKey, int] = {}
            if unknown or not acks:
                found = self._landing.of_flow(result.gateway, result.flow, unknown)
                gateway.flows.update(flow for _, flow, _, _ in found)
            of_flow = {(epoch, stream): version for (_, _, epoch, stream), version in found.items()}
            if self._has_room(gateway.answers, gateway, result) and gateway.answer(result, of_flow):
                self._touched.add(result.gateway)
        elif self._has_room(gateway.flows, gateway, result):
            gateway.flows.add(result.flow)
            self._offer(result, expanded_size(message.payload))

    def _has_room(self, flows: Collection[str], gateway: KnownGateway, result: Result) -> bool:
        """True if a result's flow is one of `flows`, or one more is allowed. Else it is counted, and said once."""
        if result.flow in flows or len(flows) < self._most_flows:
            return True
        self.counters.refused_flows += 1
        if not gateway.refused:
            log.error(
                "gateway %s: expected at most %d flows: %s is refused", result.gateway, self._most_flows, result.flow
            )
        gateway.refused = True
        return False

    def _offer(self, batch: LandingBatch, size: int) -> None:
        key = key_of(batch)
        if not self._acceptance.knows((*key[:3], 0)):
            self._check_epoch(batch)
            if not self._may_begin(batch):
                return
        # Stream 0 says whether the epoch was opened.
        for stream in (key, (*key[:3], 0)):
            if not self._acceptance.knows(stream):
                version = self._landing.version(stream)
                self.landed.set(stream, version)
                self._acceptance.learn(stream, version)
        self._taken_bytes += size
        verdict = self._acceptance.offer(key, batch.sequence, batch, size, self._clock.monotonic(), batch.first)
        if verdict is Verdict.DUPLICATE:
            self.counters.duplicates += 1
            self._touch(key)
        elif verdict is Verdict.FULL:
            self.counters.not_held += 1

    def _check_epoch(self, batch: LandingBatch) -> None:
        """An epoch that no gateway comes to would use up the numbers of its flow: no later one could be greater."""
        known = self.gateways[batch.gateway].acks.get(batch.flow, {})
        greatest = max((epoch for epoch, _ in known), default=None)
        if not is_credible(batch.epoch, greatest):
            most = max(MOST_ORDINAL, epoch_ordinal(greatest or 0) + ORDINAL_STEP)
            got = epoch_ordinal(batch.epoch)
            raise PayloadError(f"epoch: expected the {most}. of its flow at most, got the {got}.")

    def _may_begin(self, batch: LandingBatch) -> bool:
        """True if a gateway may come with one epoch more that is not known. It costs nothing to say no."""
        now = self._clock.monotonic()
        of_flow = f"{batch.gateway}/{batch.flow}"
        if self._openings_of_flow.admits(of_flow, now) and self._openings.admits(batch.gateway, now):
            return True
        self._hold_back(batch)
        return False

    def _hold_back(self, batch: LandingBatch) -> None:
        self.counters.held_back += 1
        if self._held_back != batch.gateway:
            log.warning("gateway %s begins too many epochs (flow %s): they wait", batch.gateway, batch.flow)
        self._held_back = batch.gateway

    def _land(self, enough: Callable[[], bool]) -> None:
        self._unlanded += self._acceptance.take()
        self._unlanded.sort(key=lambda batch: self._turns.spent(batch.gateway))
        report = self._landing.land([b for b in self._unlanded if not self._backoff.rests(b.flow)], enough)
        self._turns.landed(report.seconds)
        self._taken_bytes = 0
        for flow, why in report.failed.items():
            self._trouble(flow, why)
        left = set(map(id, report.left))
        landed = [b for b in self._unlanded if not self._backoff.rests(b.flow) and id(b) not in left]
        for flow in {b.flow for b in landed}:
            self._backoff.worked(flow)
        lost = {key_of(b) for b in landed if b.sequence > report.versions[key_of(b)]}
        self._unlanded = [*report.left, *(b for b in self._unlanded if self._backoff.rests(b.flow))]
        self._left = {b.gateway for b in report.left}
        for key, version in report.versions.items():
            self.landed.set(key, version)
        for key in lost:
            # The tables hold less than they did (a restored copy?): the outbox has to send again from there.
            self._acceptance.forget(key)
        self.counters.landed(report)
        for reason in report.reasons[:3]:
            log.warning("to quarantine: %s", reason[:KEPT_TEXT])
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
        """Writes refused messages to quarantine. A failed write is tried again with the next call; no result waits for
        it."""
        try:
            if self._junk:
                self._landing.quarantine_payloads(self._junk)
                self._junk.clear()
            self._junk_waits = ""
        except (TableError, CommitConflict) as error:
            self.counters.failures += 1
            if str(error) != self._junk_waits:
                log.error("malformed messages cannot be kept, results go on: %s", error)
            self._junk_waits = str(error)

    def _failed(self, error: Exception) -> None:
        self.counters.failures += 1
        if self.counters.last_error != str(error):
            log.error("results wait: %s", error)
        self.counters.last_error = str(error)

    def _trouble(self, flow: str, why: str) -> None:
        """The table of one flow cannot be used."""
        self.counters.failures += 1
        if self._backoff.failed(flow, why, self._clock.monotonic()):
            log.error("results of flow %s wait, others go on: %s", flow, why)

    def _malformed(self, message: ResultMessage, reason: str) -> None:
        self.counters.malformed += 1
        if len(self._junk) < _JUNK_PER_CALL:
            self._junk.append((message.topic, message.payload[:KEPT_BYTES], reason))
            log.warning("to quarantine: %s: %s", show(message.topic, MOST_TOPIC), reason[:KEPT_TEXT])
        else:
            self.counters.malformed_not_kept += 1

    def _meet(self, name: str, flow: str) -> KnownGateway:
        """At first sight of a gateway, its acknowledgement is what the tables say."""
        gateway = self.gateways.get(name)
        if gateway is None:
            gateway = KnownGateway()
            gateway.note(self._landing.known(name, flow))
            for old, _ in self.gateways.set(name, gateway):
                self._touched.discard(old)
        return gateway

    def _touch(self, key: SourceKey) -> None:
        name, flow, epoch, stream = key
        gateway = self._meet(name, flow)
        landed = self.landed.get(key)
        if landed is None:
            landed = self._landing.version(key)
            self.landed.set(key, landed)
        if landed:
            gateway.tell(flow, epoch, stream, landed)
        self._touched.add(name)

    def _acknowledgements(self) -> list[Acknowledgement]:
        known = [(name, self.gateways.get(name)) for name in sorted(self._touched)]
        self._touched.clear()
        return [gateway.acknowledgement(name, self._name) for name, gateway in known if gateway is not None]
