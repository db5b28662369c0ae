"""Parameters of an `mqtt_source`, and the logic that is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from edgert.codecs.base import seconds_or_none
from edgert.codecs.registry import codec_name
from edgert.codecs.registry import make as make_codec
from edgert.core.text.topic_template import TopicTemplate
from edgert.flow.fission import BY_DEVICE
from edgert.flow.spec import OperatorSpec, Parameter
from edgert.operators.base.logic import Build
from edgert.operators.sources.event_times import EventTimes
from edgert.operators.sources.source import Source


def _dead_letter_topic(text: str) -> str:
    if text and TopicTemplate(text, sink=True).names:
        raise ValueError(f"expected a fixed topic, got {text!r}")
    return text


def _time_zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        expected = "expected a time zone of the IANA database that this machine has (Debian: package tzdata)"
        raise ValueError(f"{expected}, got {name!r}") from None


def _moment(text: str) -> float:
    seconds = seconds_or_none(text, 1.0)
    if seconds is None:
        raise ValueError(f"expected a time from 1970 on as ISO 8601, got {text!r}")
    return seconds


def _codec_options(p: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a source that are its codec's."""
    if p["codec"] == "value":
        return {"value_type": p["value_type"], **_spelling(p)}
    if p["codec"] != "json":
        return {}
    name = None if p["time"] == "arrival" else p["time_field"] or "time"
    return {"time_field": name, "time_unit": p["time_unit"], "time_zone": p["time_zone"], **_spelling(p)}


def _spelling(p: Mapping[str, Any]) -> dict[str, Any]:
    return {"units": p["units"], "decimal": p["decimal"]}


def make_source(build: Build) -> Source:
    """The logic of one `mqtt_source`."""
    p = build.node.parameters
    options = _codec_options(p)
    return Source(
        p["topic"],
        make_codec(p["codec"], build.fields, **options),
        idle_timeout_s=p["idle_timeout_s"],
        out_of_order_s=p["out_of_order_s"],
        ahead_tolerance_s=p["ahead_tolerance_s"],
        ahead=p["ahead"],
        behind_tolerance_s=p["behind_tolerance_s"],
        dead_letter=p["dead_letter"],
        event_times=EventTimes(
            arrival=p["time"] == "arrival",
            declared=p["codec"] == "json" and bool(p["time_field"]),
            earliest=p["time_earliest"],
            drops_early=p["early"] == "drop",
        ),
        named=build.named,
        all_fields=make_codec(p["codec"], None, **options) if build.named else None,
    )


SPECS = (
    OperatorSpec(
        type="mqtt_source",
        role="source",
        doc="Takes in the messages of one topic template and decodes them to rows.",
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
                "How a payload is read: `json`, `senml`, `value` (a bare value such as `21.5` or `ON`), or one that an "
                "installed package adds.",
                default="json",
                parse=codec_name,
            ),
            Parameter("qos", "integer", "MQTT quality of service of the subscription.", 1, minimum=0, maximum=2),
            Parameter("retained", "boolean", "Also take messages that the broker had retained.", False),
            Parameter(
                "time",
                "string",
                "Which time is the event time: that of the `payload`, or that of `arrival` for all rows.",
                "payload",
                choices=("payload", "arrival"),
            ),
            Parameter(
                "time_field",
                "string",
                "JSON field that holds the event time, `metadata.time` in a nested object. A row without it takes the "
                "time of arrival, and is counted. Empty: `time`, and nothing is counted.",
                "",
            ),
            Parameter(
                "time_unit",
                "string",
                "Unit of the event time; `auto` tells by size.",
                "auto",
                choices=("auto", "s", "ms", "us"),
            ),
            Parameter(
                "value_type",
                "string",
                "What the codec `value` takes: `auto` a number, else text; `boolean` also on/off, yes/no, open/closed.",
                "auto",
                choices=("auto", "number", "text", "boolean"),
            ),
            Parameter(
                "units",
                "strings",
                'Units that JSON text, or a bare value, may have behind a number: with `["V"]` the text `230.1 V` is '
                "the number 230.1.",
                [],
            ),
            Parameter(
                "decimal",
                "string",
                "Decimal sign of numbers that JSON text, or a bare value, spells: with `comma` the text `21,5` is the "
                "number 21.5, and `1.234,5` is 1234.5.",
                "point",
                choices=("point", "comma"),
            ),
            Parameter(
                "time_zone",
                "string",
                "Zone of JSON times that are text without one, such as `Europe/Berlin`.",
                "UTC",
                parse=_time_zone,
            ),
            Parameter(
                "time_earliest",
                "string",
                "A time before it (ISO 8601, no zone: UTC) is that of a device whose clock was never set.",
                "2000-01-01",
                parse=_moment,
            ),
            Parameter(
                "early",
                "string",
                "What becomes of such a row: it takes the time of its `arrival`, or it is dropped. Either is counted.",
                "arrival",
                choices=("arrival", "drop"),
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
