"""`mqtt_source`: messages of one topic template, decoded to rows, with a watermark per device.

The watermark follows the design's rule (Delivery, Time): the smallest event time among the devices that are active,
less `out_of_order_s`; a device that was silent for `idle_timeout_s` holds nothing back, and when all are silent event
time goes on at the pace of the clock, so that the last window of a sensor that died is still emitted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from edgert.codecs import Codec
from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, Row
from edgert.core.errors import Problem
from edgert.core.topic_template import TopicTemplate
from edgert.flow.graph import Flow, Node
from edgert.flow.spec import OperatorSpec, Parameter

ROW_BASE_BYTES = 240
"""Resident size of a small row: the dict and its floats (measured with sys.getsizeof, 8 fields: 360 + 8 * 24)."""
FIELD_BYTES = 45
RECOMPUTE_S = 0.05
"""The minimum over all devices is taken at most this often, so that its cost does not grow with the rate."""


def _check_dead_letter(node: Node, flow: Flow) -> Iterable[Problem]:
    dead_letter, topic = node.parameters.get("dead_letter"), node.parameters.get("topic")
    if dead_letter and isinstance(topic, TopicTemplate) and _matches(topic.filter, str(dead_letter)):
        path = f"operators.{node.name}.dead_letter"
        yield Problem(path, f"a topic that this source does not read itself ({topic.filter})", repr(dead_letter))


def _matches(topic_filter: str, topic: str) -> bool:
    wanted, levels = topic_filter.split("/"), topic.split("/")
    for at, level in enumerate(wanted):
        if level == "#":
            return True
        if at >= len(levels) or level not in ("+", levels[at]):
            return False
    return len(wanted) == len(levels)


def _dead_letter_topic(text: str) -> str:
    if text and TopicTemplate(text, sink=True).names:
        raise ValueError(f"expected a fixed topic, got {text!r}")
    return text


SPECS = (
    OperatorSpec(
        type="mqtt_source",
        role="source",
        doc="Takes in the messages of one topic template and decodes them to rows.",
        check=_check_dead_letter,
        parameters=(
            Parameter(
                "topic",
                "string",
                "Topic filter; `{name}` takes one level and becomes a field of the row, `+` one level, a last `#` the rest. "
                "`{source}` names the device.",
                parse=TopicTemplate,
            ),
            Parameter("codec", "string", "How a payload is read.", default="json", choices=("json", "senml")),
            Parameter("qos", "integer", "MQTT quality of service of the subscription.", 1, minimum=0, maximum=2),
            Parameter("retained", "boolean", "Also take messages that the broker had retained.", False),
            Parameter("time_field", "string", "JSON field that holds the event time.", "time"),
            Parameter(
                "time_unit", "string", "Unit of the event time; `auto` tells by size.", "auto", choices=("auto", "s", "ms", "us")
            ),
            Parameter("idle_timeout_s", "number", "A device silent for longer holds no window back.", 30.0, "s", minimum=0.1),
            Parameter("out_of_order_s", "number", "How far rows of a device may be out of order.", 2.0, "s", minimum=0.0),
            Parameter(
                "ahead_tolerance_s",
                "number",
                "How far event time may be ahead of arrival before it is clamped for the watermark.",
                60.0,
                "s",
                minimum=0.0,
            ),
            Parameter("ahead", "string", "What becomes of a row ahead by more than that.", "keep", choices=("keep", "drop")),
            Parameter(
                "dead_letter", "string", "Topic to which malformed payloads are sent on; empty: none.", "", parse=_dead_letter_topic
            ),
            Parameter("queue_bytes", "integer", "Byte budget of this source's queue.", 4_194_304, "bytes", minimum=65_536),
            Parameter(
                "overload",
                "string",
                "What is dropped, with a count, when the queue is over its budget.",
                "shed-oldest",
                choices=("shed-oldest", "shed-newest"),
            ),
        ),
    ),
)
