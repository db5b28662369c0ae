"""A flow with an operator that fails as often as a test says, and a pool on a virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from edgert.core.batch import Batch, RawBatch
from edgert.core.checkpoint.position import Position
from edgert.core.clock import VirtualClock
from edgert.flow.document import from_plain
from edgert.flow.physical import Fusion
from edgert.flow.spec import OperatorSpec, Registry
from edgert.operators.base.logic import Emission, Logic, Message, Now
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.pool.pool import Pool
from edgert.runtime.pool.thread_roles import FAST_TURNS
from edgert.runtime.run_out import run_out
from tests.named import named

NOW = Now(0.0, 1_000.0)


class Flaky(Logic):
    """Raises on a row whose `v` is negative, until it has done so `times` times."""

    times = 1
    waits = False

    def __init__(self) -> None:
        super().__init__()
        self.left: dict[float, int] = {}
        self.asked: list[list[float]] = []

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        self.asked.append([row["v"] for row in batch.rows])
        for row in batch.rows:
            if row["v"] < 0 and self.left.get(row["v"], self.times) > 0:
                if len(batch) == 1:
                    self.left[row["v"]] = self.left.get(row["v"], self.times) - 1
                raise ConnectionError("not now")
        return (Emission(0, batch),)


def registry(times: int) -> Registry:
    made = type("Flaky", (Flaky,), {"times": times})
    return MappingProxyType({**REGISTRY, "flaky": OperatorSpec("flaky", "For tests.", logic=lambda build: made())})


def flow_run(times: int, fusion: Fusion = "full", action: str = "retry") -> FlowRun:
    on_error: dict[str, Any] = {"action": action, "topic": "bad/{operator}"}
    if action == "retry":
        on_error |= {"tries": 3, "backoff_s": 0.5}
    operators = {
        "in": {"type": "mqtt_source", "time_earliest": "1970-01-01", "topic": "x/{source}", "out_of_order_s": 0},
        "ok": {"type": "filter", "input": "in", "where": "v < 100"},
        "odd": {"type": "flaky", "input": "ok"},
        "minute": {
            "type": "tumbling_window",
            "input": "odd",
            "size_s": 10,
            "aggregates": {"n": "count()", "s": "sum(v)"},
        },
        "out": {"type": "ship", "input": "minute"},
    }
    known = registry(times)
    flow = from_plain({"name": "f", "on_error": on_error, "operators": operators}, known)
    return FlowRun(flow, known, 1, 1, Progress(Position()), fusion)


class Rig:
    """A pool whose only worker is the caller, on a virtual clock."""

    def __init__(self, run: FlowRun) -> None:
        self.run, self.clock = run, VirtualClock(1_000.0)
        self.letters: list[Message] = []
        self.pool = Pool(self.clock, send=lambda instance, messages: self.letters.extend(named(messages)))
        for one in run.all:
            one.schedule.fast_turns = FAST_TURNS
        self.pool.add(run.all)

    def feed(self, *values: float, time: float = 1.0) -> None:
        payloads = [b'{"time": %f, "v": %r}' % (time, value) for value in values]
        batch = RawBatch(["x/a"] * len(values), payloads, self.clock.monotonic(), 1_000.0, 10 * len(values))
        self.pool.put([(self.run.stages["in"].instance, 0, batch)], wake=False)
        self.work()

    def work(self) -> None:
        self.pool.lend(1.0)

    def pass_by(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.work()

    def waiting(self) -> int:
        return sum(one.queue.rows for one in self.run.all)

    def shipped(self) -> list[tuple[float, float]]:
        """(n, s) of the windows, after the end of the flow."""
        assert self.pool.hold(self.run.all, 0.0)
        for _, messages in run_out(self.run, NOW):
            self.letters.extend(named(messages))
        return [(row["n"], row["s"]) for captured in self.run.pending for row in captured.rows]
