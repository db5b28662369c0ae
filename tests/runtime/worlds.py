"""Documents of a small flow, its run, and a failure and a wire that several tests use."""

from __future__ import annotations

from typing import Any

from edgert.core.checkpoint.position import Position
from edgert.flow.document import from_plain
from edgert.flow.physical import Fusion
from edgert.links.frames import FrameSplitter
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun

DOCUMENT: dict[str, Any] = {
    "name": "f",
    "operators": {
        "in": {
            "type": "mqtt_source",
            "time_earliest": "1970-01-01",
            "topic": "x/{source}",
            "codec": "json",
            "out_of_order_s": 0,
        },
        "ok": {"type": "filter", "input": "in", "where": "v >= 0"},
        "by": {"type": "key_by", "input": "ok", "keys": ["source"]},
        "minute": {
            "type": "tumbling_window",
            "input": "by",
            "size_s": 10,
            "aggregates": {"n": "count()", "s": "sum(v)"},
        },
        "out": {"type": "ship", "input": "minute"},
    },
}
CHAINED: dict[str, Any] = {
    "name": "f",
    "operators": DOCUMENT["operators"]
    | {
        "more": {"type": "map", "input": "ok", "set": {"v": "v + 1"}},
        "by": {"type": "key_by", "input": "more", "keys": ["source"]},
    },
}
"""Two operators in the chain, the second of which must not work on a row twice."""


def flow_run(fusion: Fusion = "full", document: dict[str, Any] = DOCUMENT) -> FlowRun:
    return FlowRun(from_plain(document, REGISTRY), REGISTRY, 1, 1, Progress(Position()), fusion)


class Panic(BaseException):
    """What a Rust extension raises is no `Exception` either."""


class Wire:
    """The sending end of a link that keeps what is sent."""

    backlog_bytes = 0

    def __init__(self) -> None:
        self.sent: list[list[Any]] = []

    def send(self, data: bytes) -> None:
        self.sent += FrameSplitter().feed(data)

    def kinds(self) -> list[str]:
        return [parts[0] for parts in self.sent]
