"""`mqtt_source`: messages of one topic template, decoded to rows, with a watermark per device.

The watermark follows the design's rule (Delivery, Time): the smallest event time among the devices that are active,
less `out_of_order_s`; a device that was silent for `idle_timeout_s` holds nothing back, and when all are silent event
time goes on at the pace of the clock, so that the last window of a sensor that died is still emitted. Copies of a
source share its messages by topic, and have one watermark: that of the devices of all (`edgert.operators.devices`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from edgert.codecs.base import Codec
from edgert.codecs.registry import codec_name
from edgert.codecs.registry import make as make_codec
from edgert.codecs.shapes import KNOWN_TOPICS
from edgert.core.batch import CLOCK_IS_SET, NO_WATERMARK, Batch, RawBatch, Row
from edgert.core.errors import Problem
from edgert.core.topic_template import MAX_KNOWN_LENGTH, TopicTemplate, matches
from edgert.flow.fission import BY_DEVICE
from edgert.flow.graph import Flow, Node
from edgert.flow.spec import OperatorSpec, Parameter
from edgert.operators.devices import Board, Devices
from edgert.operators.logic import Build, Emission, Logic, Message, Now
from edgert.operators.marks import TAKEN_BACK, is_ahead

RECOMPUTE_S: Final = 0.05
"""The minimum over all devices is taken at most this often, so that its cost does not grow with the rate."""
LOOK_MOST_S: Final = 30.0
"""Between two looks at a source whose devices are all silent, at most."""
_SOURCE = itemgetter("source")
NO_TIME = "no time, and the clock is not set"
TOO_MANY: Final = "too many devices (devices)"
SAMPLES = 5
SAMPLE_BYTES = 200


@dataclass(frozen=True, slots=True)
class BadPayload:
    """A malformed payload as shown in the log: its beginning, and what is wrong with it."""

    topic: str
    beginning: bytes
    reason: str


def _check_dead_letter(node: Node, flow: Flow) -> Iterable[Problem]:
    dead_letter, topic = node.parameters.get("dead_letter"), node.parameters.get("topic")
    if dead_letter and isinstance(topic, TopicTemplate) and matches(topic.filter, str(dead_letter)):
        path = f"operators.{node.name}.dead_letter"
        yield Problem(path, f"a topic that this source does not read itself ({topic.filter})", repr(dead_letter))


def _dead_letter_topic(text: str) -> str:
    if text and TopicTemplate(text, sink=True).names:
        raise ValueError(f"expected a fixed topic, got {text!r}")
    return text


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
    ) -> None:
        super().__init__()
        self.codec = codec
        self.devices = Devices(out_of_order_s, idle_timeout_s, behind_tolerance_s)
        self.samples: list[BadPayload] = []
        """The newest malformed payloads, at most `SAMPLES` between two looks at them, for the log."""
        self._ahead_tolerance_s = ahead_tolerance_s
        self.drops_ahead = ahead == "drop"
        self._dead_letter = dead_letter
        self._captures = Captures(topic).__getitem__
        self.heeded = True
        """Whether the watermark matters to anybody; to be said before it takes anything. If not, it stays as it is, and
        no device's time is noted: that would be a good part of what a row costs in a small flow."""
        self._next_look = 0.0
        self._next_expiry = 0.0
        self._next_silent = 0.0
        self._recent: dict[str, float] = {}
        """Event times of devices since the last look, not yet told to `devices`."""
        self._dirty: dict[str, float] = {}
        self._gone: list[str] = []
        self._told: set[str] = set()
        """The devices that the state before the next delta holds."""
        self._saved_watermark = NO_WATERMARK
        self._heard = 0.0

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, RawBatch)
        looks = self.begin(now)
        rows = self.rows_of(batch)
        before = self.devices.watermark
        watermark = self.end(looks, batch.arrival, now)
        if not rows and watermark == before:
            return ()
        return (Emission(0, Batch(rows, batch.arrival, watermark)),)

    def is_due(self, monotonic: float) -> bool:
        """Whether the passing of time may change something. Where nobody was heard, or no operator needs the time,
        it does not. Where all are silent, event time goes on with the clock, and a look each twentieth of the silence
        brings it on (each `LOOK_MOST_S` at the latest). A copy among several is looked at always: its consumers wait
        for its watermark."""
        devices = self.devices
        if not self.heeded:
            return False
        if self._recent or devices.latest or len(devices.board) > 1:
            return True
        return devices.greatest > NO_WATERMARK and monotonic >= self._next_silent

    def begin(self, now: Now) -> bool:
        """Whether this turn looks at the devices' times."""
        looks = self.heeded and now.monotonic >= self._next_look
        if looks:
            self._tell()  # before this batch: what waits was heard when its own batch came, maybe long ago
            if is_ahead(max(self.devices.watermark, self.devices.greatest), now.wall, self._ahead_tolerance_s):
                self._take_back(now.wall + self._ahead_tolerance_s)
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

    def rows_of(self, batch: RawBatch) -> list[Row]:
        """The rows of a batch, their times taken note of; but for those that went to a tail (`Fusible`)."""
        if not batch.payloads:
            return []
        wall = batch.wall if batch.wall > CLOCK_IS_SET else math.nan
        decoded = self.codec.decode_batch_untrusted(batch.topics, batch.payloads, self._captures, wall)
        if decoded.bad_values:
            self.drops["bad_value (values)"] += decoded.bad_values
        if decoded.bad_payloads:
            self._bad(batch, decoded.bad_payloads)
        rows = decoded.rows if wall == wall else self._timed(decoded.rows)
        return self._observe(rows, batch) if rows else []

    def end(self, looks: bool, arrival: float, now: Now) -> float:
        """The watermark behind a batch that arrived at `arrival`. Who was silent is told by arrivals: what has waited
        in the queue, however long, was heard when it came."""
        if looks:
            self._next_look = now.monotonic + RECOMPUTE_S
            silence_s = now.monotonic - self.devices.last_heard
            self._next_silent = now.monotonic + min(LOOK_MOST_S, silence_s / 20)
            self._look(arrival)
        return self.devices.watermark

    # -- for rows that never become any (see `edgert.operators.pipeline`)

    def limit(self, wall: float) -> float:
        """The event time beyond which a row is ahead of time."""
        # a board without a clock says 1970 until it was told the time; then nothing can be called ahead
        return wall + self._ahead_tolerance_s if wall > CLOCK_IS_SET else math.inf

    @property
    def recent(self) -> dict[str, float]:
        """Where this turn puts the newest time of each device."""
        return self._recent

    def observed(self, newest: float, arrival: float, ahead: int = 0) -> None:
        """Rows came, from a batch that arrived then; their times are in `recent` if they are heeded. `newest` is the
        newest of all, and so many rows were ahead of time: theirs is that of their arrival."""
        if ahead:
            self.drops["ahead of time" if self.drops_ahead else "ahead of time (kept)"] += ahead
        if self.heeded and newest > self.devices.greatest:  # now: `_recent` may hold an older time of the device then
            self.devices.greatest = newest
        self._heard = arrival

    def _timed(self, rows: list[Row]) -> list[Row]:
        """The rows that bring their own time, while the clock cannot give them one: in 1970 they would open windows
        that nobody looks for."""
        timed = [row for row in rows if row["time"] == row["time"]]
        if len(timed) < len(rows):
            self.drops[NO_TIME] += len(rows) - len(timed)
        return timed

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
            self._recent.update(zip(map(_SOURCE, rows), times, strict=True))
        self.observed(newest, batch.arrival, ahead)
        return rows

    def _tell(self) -> None:
        """Once per look for many batches, since a device sends more than one row between two looks. All count as heard
        with the last of them: at most the time between two looks too late."""
        if self._recent:
            self.devices.observe(self._recent, self._heard)
            self._dirty.update(self._recent)
            self._recent = {}
            self._bound()

    def _bound(self) -> None:
        if gone := self.devices.too_many():
            self.drops[TOO_MANY] += len(gone)
            self._forgotten(gone)

    def _look(self, arrival: float) -> None:
        self._tell()
        if arrival >= self._next_expiry:
            self._next_expiry = arrival + min(1.0, self.devices.idle_timeout_s / 2)
            self._forgotten(self.devices.expire(arrival))
        self.devices.advance(arrival)

    def _bad(self, batch: RawBatch, bad: Sequence[tuple[int, str]]) -> None:
        self.drops["bad_payload"] += len(bad)
        for at, reason in bad:
            if len(self.samples) < SAMPLES:
                self.samples.append(BadPayload(batch.topics[at], batch.payloads[at][:SAMPLE_BYTES], reason))
            if self._dead_letter:
                self.messages.append(Message(self._dead_letter, batch.payloads[at], qos=1, reason=reason))

    def delta(self) -> Any | None:
        self._tell()
        if not self._dirty and not self._gone and self.devices.watermark == self._saved_watermark:
            return None
        latest = self.devices.latest
        told = {d: latest[d] for d in self._dirty if d in latest}
        state = {"latest": told, "gone": self._gone, **self._marks()}
        self._told.update(told)
        self._dirty, self._gone = {}, []
        self._saved_watermark = self.devices.watermark
        return state

    def _marks(self) -> dict[str, float]:
        return {"watermark": self.devices.watermark, "greatest": self.devices.greatest}

    def snapshot(self) -> Any | None:
        self._tell()
        return {"latest": dict(self.devices.latest), "gone": [], **self._marks()}

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
        self.devices.last_heard = now.monotonic
        # where event time had gone on alone, it goes on from there rather than wait for the same time again
        self.devices.greatest = max(self.devices.greatest, self.devices.watermark + self.devices.out_of_order_s)
        self.devices.sit(now.monotonic)

    def join(self, board: Board, seat: int) -> None:
        """Makes it copy number `seat` of those that share `board`; before it takes anything."""
        self.devices.board, self.devices.seat = board, seat

    def shared(self, snapshots: Sequence[Any], copies: int, copy_of: Callable[[Any], int]) -> Sequence[Any]:
        """Which copy will hear a device is not known: the first has them all, until their time-outs."""
        latest: dict[str, float] = {}
        for device, time in (item for snapshot in snapshots for item in snapshot["latest"].items()):
            latest[device] = max(time, latest.get(device, NO_WATERMARK))
        marks = {
            "watermark": min(snapshot["watermark"] for snapshot in snapshots),
            "greatest": max(snapshot["greatest"] for snapshot in snapshots),
        }
        return [{"latest": latest if n == 0 else {}, "gone": [], **marks} for n in range(copies)]


class Captures(dict[str, dict[str, str]]):
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


def make_source(build: Build) -> Source:
    """The logic of one `mqtt_source`."""
    p = build.node.parameters
    options = {"time_field": p["time_field"], "time_unit": p["time_unit"]} if p["codec"] == "json" else {}
    return Source(
        p["topic"],
        make_codec(p["codec"], build.fields, **options),
        idle_timeout_s=p["idle_timeout_s"],
        out_of_order_s=p["out_of_order_s"],
        ahead_tolerance_s=p["ahead_tolerance_s"],
        ahead=p["ahead"],
        behind_tolerance_s=p["behind_tolerance_s"],
        dead_letter=p["dead_letter"],
    )


SPECS = (
    OperatorSpec(
        type="mqtt_source",
        role="source",
        doc="Takes in the messages of one topic template and decodes them to rows.",
        check=_check_dead_letter,
        logic=make_source,
        divides_by=lambda node, keys: BY_DEVICE if "source" in node.parameters["topic"].names else (),
        parameters=(
            Parameter(
                "topic",
                "string",
                "Topic filter; `{name}` takes one level and becomes a field of the row, `+` one level, a last `#` the "
                "rest. `{source}` names the device.",
                parse=TopicTemplate,
            ),
            Parameter(
                "codec",
                "string",
                "How a payload is read: `json`, `senml`, or one that an installed package adds.",
                default="json",
                parse=codec_name,
            ),
            Parameter("qos", "integer", "MQTT quality of service of the subscription.", 1, minimum=0, maximum=2),
            Parameter("retained", "boolean", "Also take messages that the broker had retained.", False),
            Parameter("time_field", "string", "JSON field that holds the event time.", "time"),
            Parameter(
                "time_unit",
                "string",
                "Unit of the event time; `auto` tells by size.",
                "auto",
                choices=("auto", "s", "ms", "us"),
            ),
            Parameter(
                "idle_timeout_s", "number", "A device silent for longer holds no window back.", 30.0, "s", minimum=0.1
            ),
            Parameter(
                "out_of_order_s", "number", "How far rows of a device may be out of order.", 2.0, "s", minimum=0.0
            ),
            Parameter(
                "ahead_tolerance_s",
                "number",
                "How far event time may be ahead of arrival before it is clamped for the watermark.",
                60.0,
                "s",
                minimum=0.0,
            ),
            Parameter(
                "ahead", "string", "What becomes of a row ahead by more than that.", "keep", choices=("keep", "drop")
            ),
            Parameter(
                "behind_tolerance_s",
                "number",
                "A device further behind the newest event time of its source holds no window back; its rows are late.",
                3600.0,
                "s",
                minimum=1.0,
            ),
            Parameter(
                "dead_letter",
                "string",
                "Topic to which malformed payloads are sent on; empty: none.",
                "",
                parse=_dead_letter_topic,
            ),
            Parameter(
                "queue_bytes",
                "integer",
                "Byte budget of this source's queue. At QoS 1 or 2 it has at least 8 MiB, with `shed-newest` and "
                "`sample` 8 MiB on top: what is owed an acknowledgement is never dropped.",
                4_194_304,
                "bytes",
                minimum=65_536,
            ),
            Parameter(
                "overload",
                "string",
                "What is dropped, with a count, when the queue is over its budget: the oldest, the newest, or "
                "every second message of all that waits.",
                "shed-oldest",
                choices=("shed-oldest", "shed-newest", "sample"),
            ),
        ),
    ),
)
