"""The flows whose messages are counted, and the messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from benchmarks.ingest.trace import RANGES, Message, generated
from benchmarks.riotbench.flows import pred

READS: Final = (1, 8, 64, 500)
"""Messages that come with one read."""
SPACING_S: Final = 0.005
"""Event time between two messages: 200 messages/s."""
MANY: Final = 300
BASELINE: Final = "baseline"
"""The part of a count that is set-up: it is taken off."""
DEVICES: Final = 50


@dataclass(frozen=True, slots=True)
class Sent:
    """One message as a sensor publishes it."""

    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Workload:
    """Flows and what comes for them."""

    name: str
    documents: Callable[[], Sequence[Mapping[str, Any]]]
    """Makes the documents of the flows; all read the same topic filter."""
    message: Callable[[int, float], Sent]
    """(number, event time in seconds since 1970) → message."""
    messages: int
    """Messages that are counted, for each size of a read."""
    qos: int = 0
    reads: tuple[int, ...] = READS
    checkpoint_every: int = 0
    """A checkpoint is made after so many messages; 0: none is."""
    flows: int = 1
    """The figure is per message and flow."""


def _json_message(number: int, time: float) -> Sent:
    device = f"room{number % DEVICES:02}"
    body = {"source": device, "temperature": 20 + number * 7 % 60, "humidity": 30.5 + number % 40}
    return Sent(f"home/{device}/state", json.dumps(body).encode())


@cache
def _packs() -> list[Message]:
    return generated(1_000)


def _senml_message(number: int, time: float) -> Sent:
    packs = _packs()
    pack = packs[number % len(packs)]
    stamp = b"%013d" % (time * 1e3)
    return Sent(pack.topic, pack.payload[: pack.stamp] + stamp + pack.payload[pack.stamp + 13 :])


def _source(codec: str, topic: str, qos: int = 0) -> dict[str, Any]:
    return {"type": "mqtt_source", "topic": topic, "codec": codec, "qos": qos}


def filtered(name: str = "filtered", above: float = 49.0) -> dict[str, Any]:
    """Half of the messages are published again; `above`: the bound on 20 to 79 degrees."""
    return {
        "name": name,
        "checkpoint.interval_s": 3600.0,
        "operators": {
            "readings": _source("json", "home/+/state"),
            "warm": {"type": "filter", "input": "readings", "where": f"temperature > {above}"},
            "tell": {"type": "publish", "input": "warm", "topic": f"{name}/{{source}}", "qos": 0},
        },
    }


def averaged() -> dict[str, Any]:
    """Means of 10 s by device of the five measurements of a SenML pack."""
    valid = " and ".join(f"{low} <= {field} <= {high}" for field, (low, high) in RANGES.items())
    return {
        "name": "averaged",
        "checkpoint.interval_s": 3600.0,
        "operators": {
            "readings": _source("senml", "city/{source}/sense"),
            "valid": {"type": "filter", "input": "readings", "where": valid},
            "by_sensor": {"type": "key_by", "input": "valid", "keys": ["source"]},
            "means": {
                "type": "tumbling_window",
                "input": "by_sensor",
                "size_s": 10.0,
                "aggregates": {f"mean_{field}": f"mean({field})" for field in RANGES},
            },
            "central": {"type": "ship", "input": "means"},
        },
    }


def counted(name: str = "counted", qos: int = 1) -> dict[str, Any]:
    """Mean and count of a minute by device."""
    return {
        "name": name,
        "checkpoint.interval_s": 3600.0,
        "operators": {
            "readings": _source("json", "home/+/state", qos),
            "by_room": {"type": "key_by", "input": "readings", "keys": ["source"]},
            "minute": {
                "type": "tumbling_window",
                "input": "by_room",
                "size_s": 60.0,
                "aggregates": {"mean_temperature": "mean(temperature)", "rows": "count()"},
            },
            "central": {"type": "ship", "input": "minute"},
        },
    }


def _pred() -> dict[str, Any]:
    return pred() | {"checkpoint.interval_s": 3600.0}


WORKLOADS: Final = (
    Workload("JSON, filter, publish", lambda: [filtered()], _json_message, 2000),
    Workload("JSON, filter, nothing passes", lambda: [filtered(above=99.0)], _json_message, 2000, reads=(64, 500)),
    Workload("SenML, filter, keyed means", lambda: [averaged()], _senml_message, 2000),
    Workload("RIoTBench PRED", lambda: [_pred()], _senml_message, 1000),
    Workload(
        "QoS 1, keyed mean, checkpoints", lambda: [counted()], _json_message, 2000, qos=1, checkpoint_every=500
    ),
    Workload(
        "300 flows on one topic", lambda: [filtered(f"flow{n:03}", above=78.0) for n in range(MANY)], _json_message,
        64, reads=(1, 64), flows=MANY,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Idle:
    """Flows without input."""

    name: str
    flows: int
    seconds: float


IDLE: Final = (Idle("idle second, 1 flow", 1, 60.0), Idle("idle second, 300 flows", MANY, 10.0))


def idle_document(number: int) -> dict[str, Any]:
    """A flow with a window, which looks at the time."""
    document = counted(f"flow{number:03}", qos=0)
    del document["checkpoint.interval_s"]
    return document
