"""`mqtt_source`: messages of one topic template, decoded to rows, with a watermark per device.

The watermark follows the design's rule (Delivery, Time): the smallest event time among the devices that are active,
less `out_of_order_s`; a device that was silent for `idle_timeout_s` holds nothing back, and when all are silent event
time goes on at the pace of the clock, so that the last window of a sensor that died is still emitted. Copies of a
source share its messages by topic, and have one watermark: that of the devices of all
(`edgert.operators.sources.device_watermarks`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from edgert.codecs.base import Codec
from edgert.codecs.shapes import KNOWN_TOPICS
from edgert.core.batch import CLOCK_IS_SET, NO_WATERMARK, Batch, RawBatch, Row
from edgert.core.errors import PayloadError
from edgert.core.log_sampling import OTHER, LogSampling
from edgert.core.text.topic_template import MAX_KNOWN_LENGTH, TopicTemplate
from edgert.operators.base.logic import Emission, Logic, Message, Now
from edgert.operators.sources.device_watermarks import Devices, Standings
from edgert.operators.sources.event_times import EventTimes
from edgert.operators.sources.unseen_fields import UnseenFields
from edgert.operators.state.wrong_clock import SLACK_S, TAKEN_BACK, is_ahead

RECOMPUTE_S: Final = 0.05
"""The minimum over all devices is taken at most this often, so that its cost does not grow with the rate."""
DEVICES_PER_S: Final = 100_000
"""Devices that these looks go over in a second, at most: some 1 % of a core. More than 5,000 are looked at less often,
the most that a source keeps (`MAX_KEYS`) once a second."""
LOOK_MOST_S: Final = 30.0
"""Between two looks at a source whose devices are all silent, at most."""
_SOURCE = itemgetter("source")
TOO_MANY: Final = "too many devices (devices)"
SAMPLE_BYTES = 200
SAMPLE_EACH_S: Final = 1.0
"""A message with a row ahead of time is kept as a sample at most this often."""
AHEAD: Final = "ahead of time"
AHEAD_KEPT: Final = "ahead of time (kept)"
REASONS: Final = 16
"""Reasons of malformed payloads that are told apart between two looks at them."""


@dataclass(frozen=True, slots=True)
class BadPayload:
    """A malformed payload as people see it: its beginning, and what is wrong with it."""

    topic: str
    beginning: bytes
    reason: str
    arrival: float = 0.0
    """Monotonic seconds of the gateway."""

    @property
    def kind(self) -> str:
        """The reason without what this very payload held."""
        return self.reason.partition(", got ")[0]

    def __str__(self) -> str:
        return f"on {self.topic!r}: {self.reason}; it begins {self.beginning!r}"


@dataclass(frozen=True, slots=True)
class AheadOfTime:
    """A message with a row ahead of time."""

    topic: str
    beginning: str
    seconds: float
    """How far the row's time was ahead of its arrival."""


class Source(Logic):
    """Decodes raw batches. State: the watermark and, if it is `heeded`, the newest event time per active device."""

    repeatable = True  # to hear of a time twice changes nothing

    def __init__(
        self,
        topic: TopicTemplate,
        codec: Codec,
        idle_timeout_s: float = 30.0,
        out_of_order_s: float = 2.0,
        ahead_tolerance_s: float = 60.0,
        ahead: str = "keep",
        behind_tolerance_s: float = 3600.0,
        dead_letter: str = "",
        event_times: EventTimes = EventTimes(),  # noqa: B008 - it cannot be changed
        named: frozenset[str] = frozenset(),
        all_fields: Codec | None = None,
    ) -> None:
        """`named`: fields that the flow reads by name; `all_fields`: a codec that builds all, to find those missing."""
        super().__init__()
        self.codec = codec
        self.devices = Devices(out_of_order_s, idle_timeout_s, behind_tolerance_s)
        self.memory = self.devices.memory
        self.bad_payloads: dict[str, tuple[int, BadPayload]] = {}
        """Malformed payloads by kind since the last look at them, for the log, and the newest."""
        self.newest_bad: BadPayload | None = None
        self.newest_ahead: AheadOfTime | None = None
        self._ahead_came = False
        self._next_sample = -math.inf
        self.log_sampling = LogSampling()
        self._ahead_tolerance_s = ahead_tolerance_s
        self.drops_ahead = ahead == "drop"
        self.event_times = event_times
        self._dead_letter = dead_letter
        self._captures = TopicCaptures(topic).__getitem__
        self.unseen = UnseenFields(named, all_fields, self._captures)
        self.heeded = True
        """True if the watermark matters to anybody; to be said before it takes anything. If not, it stays as it is, and
        no device's time is noted: that would be a good part of what a row costs in a small flow."""
        self.took_back = False
        """This turn has taken the watermark back: what stands behind must hear of that before it takes a row."""
        self._next_look = 0.0
        self._next_expiry = 0.0
        self._next_silent = 0.0
        self.recent: dict[str, float] = {}
        """Event times of devices since the last look, not yet told to `devices`."""
        self._dirty: dict[str, float] = {}
        self._gone: list[str] = []
        self._told: set[str] = set()
        """The devices that the state before the next delta holds."""
        self._saved_watermark = NO_WATERMARK
        self._heard = 0.0

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, RawBatch)
        looks = self.begin(now, batch.wall)
        rows = self.rows_of(batch)
        before = self.devices.watermark
        watermark = self.end(looks, batch.arrival, batch.wall, now)
        if not rows and watermark == before:
            return ()
        return (Emission(0, Batch(rows, batch.arrival, watermark)),)

    def is_due(self, monotonic: float) -> bool:
        """True if the passing of time may change something. Where nobody was heard, or no operator needs the time, it
        does not. Where all are silent, event time goes on with the clock, and a look each twentieth of the silence
        brings it on (each `LOOK_MOST_S` at the latest). A copy among several is looked at always: its consumers wait
        for its watermark."""
        devices = self.devices
        if not self.heeded:
            return False
        if self.recent or devices.latest or len(devices.board) > 1:
            return True
        return devices.greatest > NO_WATERMARK and monotonic >= self._next_silent

    def begin(self, now: Now, wall: float) -> bool:
        """True if this turn, with a batch that arrived at `wall`, looks at the devices' times."""
        if not self.heeded:
            return False
        devices = self.devices
        ahead = is_ahead(max(devices.watermark, devices.greatest), wall, self._ahead_tolerance_s)
        # a turn without rows may have taken it back: those behind this source hear so with the first watermark there is
        self.took_back = ahead or devices.watermark == NO_WATERMARK
        looks = self.took_back or now.monotonic >= self._next_look
        if looks:
            self._tell()  # before this batch: what waits was heard when its own batch came, maybe long ago
        if ahead:
            self._take_back(wall + self._ahead_tolerance_s)
        return looks

    def _take_back(self, limit: float) -> None:
        """The clock was ahead when the times came that led to the watermark: it is found anew, from those before
        `limit`."""
        self._forgotten(self.devices.take_back(limit))
        self.drops[TAKEN_BACK] += 1

    def _forgotten(self, devices: Iterable[str]) -> None:
        """The next delta says it of those that the state before it holds: of names that come and go between two there
        may be any number."""
        for device in devices:
            self._dirty.pop(device, None)
            if device in self._told:
                self._told.discard(device)
                self._gone.append(device)
        if not self._told:
            self._told = set()  # a set keeps the room that it had

    def rows_of(self, batch: RawBatch) -> list[Row]:
        """The rows of a batch, their times taken note of; but for those that went to a tail (`Fusible`)."""
        if not batch.payloads:
            return []
        if self.unseen.missing:
            self.unseen.look(batch)
        if batch.arrival >= self.unseen.units.next_look:
            self.unseen.units.look(batch)
        wall = batch.wall if batch.wall > CLOCK_IS_SET else math.nan
        decoded = self.codec.decode_batch_untrusted(batch.topics, batch.payloads, self._captures, wall)
        if decoded.bad_values:
            self.drops["bad_value (values)"] += decoded.bad_values
        if decoded.bad_payloads:
            self._bad(batch, decoded.bad_payloads)
        rows = self.event_times.settled(decoded.rows, wall, self.drops) if decoded.rows else []
        rows = self._observe(rows, batch) if rows else []
        if self._ahead_came and batch.arrival >= self._next_sample:
            self._sample_ahead(batch)
        return rows

    def end(self, looks: bool, arrival: float, wall: float, now: Now) -> float:
        """The watermark behind a batch that arrived at `arrival`. Who was silent is told by arrivals: what has waited
        in the queue, however long, was heard when it came."""
        if looks:
            self._next_look = now.monotonic + max(RECOMPUTE_S, len(self.devices.latest) / DEVICES_PER_S)
            silence_s = now.monotonic - self.devices.last_heard
            self._next_silent = now.monotonic + min(LOOK_MOST_S, silence_s / 20)
            self._look(arrival, self.limit(wall) + SLACK_S)
        return self.devices.watermark

    # -- for rows that never become any (see `edgert.operators.fusion.compiled_region`)

    def limit(self, wall: float) -> float:
        """The event time beyond which a row is ahead of time."""
        # a board without a clock says 1970 until it was told the time; then nothing can be called ahead
        return wall + self._ahead_tolerance_s if wall > CLOCK_IS_SET else math.inf

    def observed(self, newest: float, arrival: float, ahead: int = 0) -> None:
        """Rows came, from a batch that arrived then; their times are in `recent` if they are heeded. `newest` is the
        newest of all, and so many rows were ahead of time: theirs is that of their arrival."""
        if ahead:
            self.drops[AHEAD if self.drops_ahead else AHEAD_KEPT] += ahead
            self._ahead_came = True
        if self.heeded and newest > self.devices.greatest:  # now: `recent` may hold an older time of the device then
            self.devices.greatest = newest
        self._heard = arrival

    def _observe(self, rows: list[Row], batch: RawBatch) -> list[Row]:
        # the last time per device rather than the greatest: it errs on the side of waiting, and costs half
        times = [row["time"] for row in rows]
        limit = self.limit(batch.wall)
        newest, ahead = max(times), 0
        if newest > limit:
            ahead = sum(time > limit for time in times)
            if self.drops_ahead:
                rows = [row for row in rows if row["time"] <= limit]
            times = [row["time"] if row["time"] <= limit else batch.wall for row in rows]
            newest = max(times, default=NO_WATERMARK)
        if self.heeded:
            self.recent.update(zip(map(_SOURCE, rows), times, strict=True))
        self.observed(newest, batch.arrival, ahead)
        return rows

    def _sample_ahead(self, batch: RawBatch) -> None:
        """Decodes the last message once more: fused code builds no rows."""
        self._ahead_came, self._next_sample = False, batch.arrival + SAMPLE_EACH_S
        topic, payload, rows = batch.topics[-1], batch.payloads[-1], list[Row]()
        try:
            self.codec.decode_untrusted(payload, self._captures(topic), batch.wall, rows, topic)
        except PayloadError:
            return
        if rows and (time := max(row["time"] for row in rows)) > self.limit(batch.wall):
            beginning = payload[:SAMPLE_BYTES].decode(errors="backslashreplace")
            self.newest_ahead = AheadOfTime(topic, beginning, round(time - batch.wall, 1))

    def _tell(self) -> None:
        """Once per look for many batches, since a device sends more than one row between two looks. All count as heard
        with the last of them: at most the time between two looks too late."""
        if self.recent:
            self.devices.observe(self.recent, self._heard)
            self._dirty.update(self.recent)
            self.recent = {}
            self._bound()

    def _bound(self) -> None:
        if gone := self.devices.too_many():
            self.drops[TOO_MANY] += len(gone)
            self._forgotten(gone)

    def _look(self, arrival: float, limit: float) -> None:
        self._tell()
        if arrival >= self._next_expiry:
            self._next_expiry = arrival + min(1.0, self.devices.idle_timeout_s / 2)
            self._forgotten(self.devices.expire(arrival))
        self.devices.advance(arrival, limit)

    def _bad(self, batch: RawBatch, bad: Sequence[tuple[int, str]]) -> None:
        self.drops["bad_payload"] += len(bad)
        for at, reason in bad:
            sample = BadPayload(batch.topics[at], batch.payloads[at][:SAMPLE_BYTES], reason, batch.arrival)
            kind = sample.kind if len(self.bad_payloads) < REASONS else OTHER
            self.bad_payloads[kind] = (self.bad_payloads.get(kind, (0, sample))[0] + 1, sample)
            self.newest_bad = sample
            if self._dead_letter:
                self.messages.append(Message(self._dead_letter, batch.payloads[at], qos=1, reason=reason))

    def delta(self) -> Any | None:
        self._tell()
        if not self._dirty and not self._gone and self.devices.watermark == self._saved_watermark:
            return None
        latest = self.devices.latest
        told = {d: latest[d] for d in self._dirty if d in latest}
        state = {"latest": told, "gone": self._gone, **self._times()}
        self._told.update(told)
        self._dirty, self._gone = {}, []
        self._saved_watermark = self.devices.watermark
        return state

    def _times(self) -> dict[str, float]:
        return {"watermark": self.devices.watermark, "greatest": self.devices.greatest}

    def snapshot(self) -> Any | None:
        self._tell()
        return {"latest": dict(self.devices.latest), "gone": [], **self._times()}

    def restore(self, state: Any) -> None:
        self.devices.remove(state["gone"])
        self.devices.add(state["latest"])
        self._told.difference_update(state["gone"])
        self._told.update(state["latest"])
        self._bound()  # it may be from before there was a bound
        self.devices.watermark = self._saved_watermark = state["watermark"]
        self.devices.greatest = state["greatest"]

    def resumed(self, now: Now) -> None:
        """Called once after a restore: the time-outs of the devices begin anew. Where their times are heeded no more
        (there was a window once, or less was fused), they go."""
        if not self.heeded:
            gone = list(self.devices.latest)
            self.devices.remove(gone)
            self._forgotten(gone)
        self.devices.heard = dict.fromkeys(self.devices.latest, now.monotonic)
        self.devices.last_heard = self.devices.moved_at = now.monotonic
        # where event time had gone on alone, it goes on from there rather than wait for the same time again
        self.devices.greatest = max(self.devices.greatest, self.devices.watermark + self.devices.out_of_order_s)
        self.devices.sit(now.monotonic)

    def join(self, board: Standings, seat: int) -> None:
        """Makes it copy number `seat` of those that share `board`; before it takes anything."""
        self.devices.board, self.devices.seat = board, seat


class TopicCaptures(dict[str, dict[str, str]]):
    """Captures by topic, remembered (bounded: a hostile publisher may use endless topics)."""

    def __init__(self, topic: TopicTemplate) -> None:
        super().__init__()
        self._topic = topic

    def __missing__(self, name: str) -> dict[str, str]:
        found = self._topic.captures(name)
        if len(name) <= MAX_KNOWN_LENGTH:
            if len(self) >= KNOWN_TOPICS:
                self.clear()
            self[name] = found
        if found.get("source") == "":  # an empty level, which MQTT allows: what names no device is one by itself
            found["source"] = name
        return found
