"""Flows whose operators have several instances, run in any order of turns, and messages for them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from hypothesis import strategies as st

from edgert.core.batch import RawBatch
from edgert.core.checkpoint.position import Position
from edgert.core.clock import VirtualClock
from edgert.flow.document import from_plain
from edgert.flow.physical import Fusion
from edgert.operators.base.logic import Message, Now
from edgert.operators.registry import REGISTRY
from edgert.operators.state.partitioning import CopiesByTopic
from edgert.operators.windows import TumblingWindow
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.queue import Entry
from edgert.runtime.pool.pool import Pool
from edgert.runtime.run_out import run_out
from gateway.ingest.inbox import Reader
from tests.named import named

WALL = 1_700_000_000.0
Rows = list[dict[str, Any]]


class Way:
    """A flow whose instances take turns as `draw` says; all copies of a row's way are as fast or slow as it likes."""

    def __init__(self, plain: dict[str, Any], draw: random.Random, fusion: Fusion = "full", fission: bool = True):
        self.plain, self.draw, self.fusion = plain, draw, fusion
        self.sent: list[Message] = []
        self.shipped: Rows = []
        self.deltas: list[bytes] = []
        self.queue = b""
        self.drops: dict[str, int] = {}
        self.begin(fission)

    def begin(self, fission: bool) -> None:
        flow = from_plain(self.plain, REGISTRY)
        self.run = FlowRun(flow, REGISTRY, 1, 1, Progress(Position()), self.fusion, fission)
        self.readers = []
        for first, copies in self.run.sources():
            self.readers.append(Reader(self.run.progress, copies[0]))
            if len(copies) > 1:
                by_topic = CopiesByTopic(first.parameters["topic"], len(copies))
                self.readers[-1].copies, self.readers[-1].copy_of = copies, by_topic

    def feed(self, messages: Sequence[tuple[str, bytes]], moment: float) -> None:
        batch = RawBatch([t for t, _ in messages], [p for _, p in messages], moment, WALL + moment, 100 * len(messages))
        for reader in self.readers:
            for instance, part in reader.divide(batch) if reader.copies else [(reader.instance, batch)]:
                assert instance is not None
                instance.queue.put(Entry(0, part))
        self.run.progress.fed += 1

    def tick(self, moment: float) -> None:
        for _, copies in self.run.sources():
            for instance in copies:
                instance.queue.put(Entry(0, RawBatch([], [], moment, WALL + moment)))

    def work(self, moment: float, turns: int | None = None, only: str = "") -> None:
        """So many turns, or until nothing waits; `only` those of instances of that kind."""
        while turns is None or turns > 0:
            waiting = [i for i in self.run.all if i.queue.rows and only in (i.kind, "")]
            if not waiting:
                break
            instance = self.draw.choice(waiting)
            turn = instance.run(instance.queue.take(self.draw.randint(1, 8)), Now(moment, WALL + moment))
            assert turn.failed is None, turn.failed
            self.sent += named(turn.messages)
            for target, batch in turn.out:
                target.instance.queue.put(Entry(target.source, batch, producer=target.producer))
            turns = turns - 1 if turns is not None else None

    def checkpoint(self) -> None:
        assert self.run.capture(self.pool(), nullcontext(), 30.0)
        self.commit()

    def commit(self) -> None:
        form = self.run.form()
        if form:
            self.deltas += form.deltas
            self.queue = form.queue
            self.shipped += [dict(zip(form.columns, row, strict=True)) for row in form.rows]
            self.run.committed(form)

    def crash(self, moment: float, compact: bool = False) -> None:
        """Right after a checkpoint: nothing is lost, so nothing needs to be fed again."""
        self.checkpoint()
        if compact and self.deltas:
            self.deltas = [self.run.compact(self.deltas)]
        self.keep_drops()
        self.begin(self.run.fission)
        self.run.restore(self.deltas, self.queue, Now(moment, WALL + moment))
        self.pool()

    def pool(self) -> Pool:
        pool = Pool(VirtualClock(), send=lambda instance, messages: self.sent.extend(named(messages)))
        pool.add(self.run.all)
        return pool

    def keep_drops(self) -> None:
        for name, place in self.run.stages.items():
            for reason, rows in place.logic.drops.items():
                at = f"{name.partition('#')[0]}: {reason}"
                self.drops[at] = self.drops.get(at, 0) + rows

    def end(self) -> Rows:
        for _, messages in run_out(self.run, Now(1e6, WALL + 1e6)):
            self.sent.extend(named(messages))
        self.commit()
        self.keep_drops()
        return self.shipped

    def watermarks(self) -> set[float]:
        """Of all windows."""
        return {p.logic.watermark for p in self.run.stages.values() if isinstance(p.logic, TumblingWindow)}

    def published(self) -> dict[str, list[bytes]]:
        """By topic, in the order in which they left."""
        topics: dict[str, list[bytes]] = {}
        for message in self.sent:
            topics.setdefault(message.topic, []).append(message.payload)
        return topics


def totals(rows: Rows) -> dict[tuple[Any, ...], tuple[int, float]]:
    """Contributions of a window added up."""
    found: dict[tuple[Any, ...], tuple[int, float]] = {}
    for row in rows:
        key = (row["window_start"], row.get("room"), row.get("source"))
        n, s = found.get(key, (0, 0.0))
        found[key] = (n + row["n"], s + (row["s"] or 0.0))
    return found


COPIES = st.integers(1, 4)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A source, operators without state, then operators with state and without, and both kinds of sink."""
    keys = draw(st.sampled_from([["source"], ["room"], ["room", "source"], ["level"]]))
    operators: dict[str, Any] = {
        "in": {"type": "mqtt_source", "topic": "{room}/{source}/+", "out_of_order_s": 0, "instances": draw(COPIES)},
    }
    last = "in"

    def add(name: str, type: str, **parameters: Any) -> None:  # noqa: A002
        nonlocal last
        operators[name] = {"type": type, "input": last, **parameters}
        last = name

    if draw(st.booleans()):
        add("ok", "filter", where="v > -8", instances=draw(COPIES))
    if draw(st.booleans()) or keys == ["level"]:
        add("more", "map", set={"level": "v % 3", "w": "v * 2"}, instances=draw(COPIES))
    types = {"key_types": {"level": "long"}} if keys == ["level"] else {}
    add("by", "key_by", keys=keys, **types)
    split = last
    follow = draw(st.sampled_from(["", "kalman", "distinct_count", "count_window"]))
    if follow == "kalman":
        add("follow", "kalman", field="v", instances=draw(COPIES))
    if follow == "distinct_count":
        add("follow", "distinct_count", field="v", instances=draw(COPIES))
    if follow == "count_window":
        add("follow", "count_window", size=3, aggregates={"v": "sum(v)"}, instances=draw(COPIES))
    if follow and draw(st.booleans()):
        add("after", "map", set={"x": "v + 1"}, instances=draw(COPIES))
    if follow:
        add("tell", "publish", topic="out/of/all/" + "/".join(f"{{{key}}}" for key in keys), instances=draw(COPIES))
    last = split
    add("w", "tumbling_window", size_s=10, late=draw(st.sampled_from(["ship", "drop"])), instances=draw(COPIES),
        aggregates={"n": "count()", "s": "sum(v)"})  # fmt: skip
    add("out", "ship", instances=draw(COPIES))
    return {"name": "f", "operators": operators}


MESSAGES = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.integers(-9, 9)), min_size=1, max_size=10),
    min_size=1,
    max_size=8,
)
DEVICES = [(room, source) for room in "xy" for source in "abc"]


def keeps_order(plain: dict[str, Any]) -> bool:
    """Whether the rows of a key come in the order in which one copy sees them. Copies of a source keep that of a topic
    only; before a key that is made on the way, rows are divided by device."""
    operators = plain["operators"]
    single = [name for name in ("in", "ok", "more") if operators.get(name, {}).get("instances", 1) == 1]
    match operators["by"]["keys"]:
        case ["room", "source"]:
            return True
        case ["level"]:
            return len(single) == 3
    return "in" in single


def by_device(sent: list[Message]) -> dict[tuple[str, str, str], list[float]]:
    """The times of published rows by (topic, room, device), in their order."""
    times: dict[tuple[str, str, str], list[float]] = {}
    for message in sent:
        row = json.loads(message.payload)
        times.setdefault((message.topic, row["room"], row["source"]), []).append(row["time"])
    return times


def messages(number: int) -> list[tuple[str, bytes]]:
    return [
        (f"{room}/{source}/t", json.dumps({"time": WALL + number + 0.01 * k, "v": number % 7}).encode())
        for k, (room, source) in enumerate(DEVICES)
    ]
