"""A flow of operators run by hand, and payloads for it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from edgert.codecs.registry import make
from edgert.core.batch import RawBatch
from edgert.core.checkpoint.position import Position
from edgert.core.text.topic_template import TopicTemplate
from edgert.flow.document import from_plain
from edgert.flow.physical import Fusion
from edgert.operators.base.logic import Now
from edgert.operators.registry import REGISTRY
from edgert.operators.sources.source import Source
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.queue import Entry
from edgert.runtime.run_out import run_out

WALL = 1_700_000_000.0


def payload(codec: str, kind: str, time: float, t: object, h: object) -> bytes:
    if kind == "broken":
        return b"{no json"
    if kind == "huge":
        t = 10**400 if codec == "json" else "1e400"
    if kind == "text":
        t = "warm"
    if kind == "far":
        h = 1e160
    if kind == "half":
        h = 2.5
    if codec == "json":
        return json.dumps({"time": time, "t": t} | ({} if kind == "short" else {"h": h})).encode()
    records = [{"bt": time, "n": "t", "v": t}, *([] if kind == "short" else [{"n": "h", "v": h}])]
    return json.dumps(records).encode()


class Way:
    """A flow run by hand, all instances in order after each batch."""

    def __init__(self, plain: dict[str, Any], fusion: Fusion, source: str = "in") -> None:
        self.source = source
        self.run = FlowRun(from_plain(plain, REGISTRY), REGISTRY, 1, 1, Progress(Position()), fusion)
        self.letters: list[tuple[str, bytes]] = []

    def feed(self, topics: list[str], payloads: list[bytes], moment: float) -> None:
        batch = RawBatch(topics, payloads, moment, WALL + moment)
        self.run.stages[self.source].instance.queue.put(Entry(0, batch))
        now = Now(moment, WALL + moment)
        for instance in self.run.all:
            entries = instance.queue.take_all()
            instance.counters.rows_in += sum(len(entry.batch) for entry in entries)
            turn = instance.run(entries, now)
            assert turn.failed is None
            self.letters += [(topic, payload) for topic, payload, *_ in turn.messages]
            for target, emitted in turn.out:
                target.instance.queue.put(Entry(target.source, emitted))

    def end(self) -> list[dict[str, Any]]:
        list(run_out(self.run, Now(1e6, WALL)))
        return [row for captured in self.run.pending for row in captured.rows]

    def drops(self) -> dict[str, dict[str, int]]:
        return {name: dict(stage.logic.drops) for name, stage in self.run.stages.items()}

    def rows(self) -> dict[str, tuple[int, int]]:
        return {name: (stage.rows_in, stage.rows_out) for name, stage in self.run.stages.items()}


KINDS = ["short", "broken", "huge", "far", "half", "text", "ahead", "late"]
NUMBERS = st.integers(-10, 10).map(float)


def times(stream: list[list[Any]]) -> Iterator[tuple[float, list[tuple[Any, float]]]]:
    for number, messages in enumerate(stream):
        moment = 4.0 * number
        far = {"ahead": 500.0, "late": -60.0}
        yield moment, [(m, WALL + moment + 0.1 * k + far.get(m[0], 0.0)) for k, m in enumerate(messages)]


def said(way: Way) -> dict[str, list[bytes]]:
    """By topic, in order."""
    letters: dict[str, list[bytes]] = defaultdict(list)
    for topic, message in way.letters:
        letters[topic].append(message)
    return letters


def deltas(way: Way) -> dict[str, Any]:
    """As a checkpoint takes them."""
    return {name: stage.logic.delta() for name, stage in way.run.stages.items()}


def source(**options: Any) -> Source:
    options = {"idle_timeout_s": 30.0, "out_of_order_s": 2.0, "ahead_tolerance_s": 60.0} | options
    return Source(TopicTemplate("room/{source}"), make("json", None), **options)
