"""One application under one load, fed from memory: a process of its own, which says as JSON what it saw.

The load is open-loop: what is due by the schedule is fed whether or not the engine keeps up, and its latency counts
from when it was due. So an engine that falls behind shows it (no coordinated omission).
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, get_args

from benchmarks.ingest.trace import messages
from benchmarks.riotbench.bare_loop import operators_of
from benchmarks.riotbench.flows import APPLICATIONS, BY_TIME
from benchmarks.riotbench.probe import LOOP
from benchmarks.thread_per_operator import OWPOA, ThreadPerInstance
from edgert.core.batch import RawBatch
from edgert.core.checkpoint.position import Position
from edgert.core.system_clock import SystemClock
from edgert.flow.document import from_plain
from edgert.flow.physical import Fusion
from edgert.operators.base.logic import PlainMessage
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.latency import Latency, quantile_s
from edgert.runtime.pool.from_settings import make_pool
from edgert.runtime.pool.pool import Pool, Send
from edgert.scheduling.consumption import CONSUMPTIONS
from edgert.scheduling.policies import POLICIES

LEND_S: Final = 0.002
"""As the gateway does it: the feeding thread works on what it has fed."""
PROFILE_S: Final = 1.0
"""As the gateway does it: so often the policy is told what rows cost and give; here first when the warm-up ends."""
ROUND_MS: Final = 60_000
"""How long the trace is, in its own time."""


class Feed:
    """The trace over and over, as batches that are due at times of a schedule.

    With `time_goes_on` each time is a minute later than the last: the trace is of one minute, and rows of different
    rounds would be one observation to whoever joins by time. That costs the feed some 0.3 µs per message.
    """

    def __init__(self, rate: float, tick_s: float, *, time_goes_on: bool = False) -> None:
        trace, _ = messages()
        self._topics = [m.topic for m in trace]
        self._payloads = [m.payload for m in trace]
        self._stamps = [(m.stamp, int(m.payload[m.stamp : m.stamp + 13])) for m in trace] if time_goes_on else []
        self._sizes = sum(map(len, self._payloads)) / len(trace)
        self._rate, self._tick_s = rate, tick_s

    def due(self, seconds: float, first: int = 0) -> Iterator[RawBatch]:
        """Each batch when it is due, or at once if that is past; they begin with message number `first`."""
        began = time.monotonic()
        fed = first
        for tick in range(1, int(seconds / self._tick_s) + 1):
            due = began + tick * self._tick_s
            wait = due - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            until = first + int(tick * self._tick_s * self._rate)
            if until > fed:
                yield self.batch(fed, until, due)
            fed = until

    def batch(self, first: int, last: int, due: float) -> RawBatch:
        """The messages from `first` to before `last`."""
        size = len(self._topics)
        at, count = first % size, last - first
        if self._stamps:
            places = [divmod(number, size) for number in range(first, last)]
            stamped = [self._stamped(round_, place) for round_, place in places]
            topics = [self._topics[place] for _, place in places]
            return RawBatch(topics, stamped, due, time.time(), int(count * self._sizes))
        topics, payloads = self._topics[at : at + count], self._payloads[at : at + count]
        while len(topics) < count:
            topics += self._topics[: count - len(topics)]
            payloads += self._payloads[: count - len(payloads)]
        return RawBatch(topics, payloads, due, time.time(), int(count * self._sizes))

    def _stamped(self, round_: int, place: int) -> bytes:
        payload, (at, stamp) = self._payloads[place], self._stamps[place]
        return b"%s%d%s" % (payload[:at], stamp + round_ * ROUND_MS, payload[at + 13 :])


class Seen:
    """What is counted from the end of the warm-up on."""

    def __init__(self, run: FlowRun, told: list[int]) -> None:
        self.cpu_s = time.process_time()
        used = resource.getrusage(resource.RUSAGE_SELF)
        self.switches, self.preempted = used.ru_nvcsw, used.ru_nivcsw
        self.at = time.monotonic()
        self.told = told[0]
        self.latency = [sum(counts) for counts in zip(*(i.counters.latency.counts for i in run.all), strict=True)]
        self.idle = [instance.idle_at(self.at) for instance in run.all]
        self.busy = sum(i.counters.busy_s for i in run.all)
        self.scheduling = sum(i.counters.scheduling_s for i in run.all)


def outcome(
    before: Seen, after: Seen, rows: int, run: FlowRun, longest: int, waiting: Sequence[tuple[float, int]] = ()
) -> dict[str, Any]:
    """The difference, as JSON. `waiting`: arrival and rows of what is in queues."""
    passed = after.at - before.at
    late = Latency()
    late.counts = [now - then for now, then in zip(after.latency, before.latency, strict=True)]
    came = sum(late.counts) / max(1, rows) or 1.0
    for arrival, count in waiting:  # what will come out of it has taken that long at least
        late.add(after.at - arrival, math.ceil(count * came))
    used = [1 - (now - then) / passed for now, then in zip(after.idle, before.idle, strict=True)]
    mean = statistics.fmean(used)
    p50, p99 = (quantile_s(late.counts, part) for part in (0.5, 0.99))
    return {
        "cpu_us": (after.cpu_s - before.cpu_s) / max(1, rows) * 1e6,
        "switches": (after.switches - before.switches) / max(1, rows),
        "preempted": (after.preempted - before.preempted) / max(1, rows),
        "rows": rows,
        "out_per_s": (after.told - before.told) / passed,
        "mean_ms": None if not sum(late.counts) else late.mean_s() * 1e3,
        "p50_ms": None if p50 is None else p50 * 1e3,
        "p99_ms": None if p99 is None else p99 * 1e3,
        "shed": sum(i.delivery.shed for i in run.all),
        "failures": sum(i.failures for i in run.all),
        "left": sum(i.queue.rows for i in run.all),
        "longest": longest,
        "waited": (after.scheduling - before.scheduling) / max(1e-9, after.busy - before.busy),
        "balance": statistics.pstdev(used) / mean if mean else 0.0,
    }


def waiting_in(pool: Pool, run: FlowRun) -> list[tuple[float, int]]:
    """Arrival and rows of what is in queues."""
    with pool.lock:
        return [(entry.batch.arrival, len(entry.batch)) for one in run.all for entry in one.queue.entries]


def flow_run(application: str, fusion: Fusion) -> FlowRun:
    """The application, ready to run; its source sheds nothing that a benchmark could feed."""
    plain = APPLICATIONS[application]()
    for operator in plain["operators"].values():
        if operator["type"] == "mqtt_source":
            operator["queue_bytes"] = 1 << 30
    return FlowRun(from_plain(plain, REGISTRY), REGISTRY, 1, 1, Progress(Position()), fusion)


def pooled(run: FlowRun, pool: Pool, feed: Feed, warm_up: float, seconds: float, told: list[int]) -> dict[str, Any]:
    """Under a pool."""
    sources = [instance for _, copies in run.sources() for instance in copies]
    pool.add(run.all)
    pool.start()
    rows = longest = 0
    before: Seen | None = None
    profiles = time.monotonic() + warm_up
    for batch in feed.due(warm_up + seconds):
        now = time.monotonic()
        if now >= profiles:
            profiles = now + PROFILE_S
            pool.profile()
            if before is None:
                before, rows, longest = Seen(run, told), 0, 0
        pool.put([(source, 0, batch) for source in sources], wake=False)
        longest = max(longest, *(i.queue.rows for i in run.all))
        pool.lend(LEND_S)
        rows += len(batch)
        longest = max(longest, *(i.queue.rows for i in run.all))
    assert before is not None
    result = outcome(before, Seen(run, told), rows, run, longest, waiting_in(pool, run))
    pool.stop()
    return result


def looped(run: FlowRun, feed: Feed, warm_up: float, seconds: float, told: list[int]) -> dict[str, Any]:
    """By the bare loop: what no scheduler of these operators (as they are fused here) in one process can surpass. A
    row's latency ends with the step that takes it."""
    step = operators_of(run, told)
    late = Latency()
    rows = 0
    before: Seen | None = None
    began = time.monotonic()
    for batch in feed.due(warm_up + seconds):
        if before is None and time.monotonic() - began >= warm_up:
            before, late, rows = Seen(run, told), Latency(), 0
        step(batch)
        late.add(time.monotonic() - batch.arrival, len(batch))
        rows += len(batch)
    assert before is not None
    after = Seen(run, told)
    after.latency = late.counts
    return outcome(before, after, rows, run, 0)


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser("engine")
    parser.add_argument("--application", choices=APPLICATIONS, required=True)
    parser.add_argument("--policy", choices=(*POLICIES, OWPOA, LOOP), default="congestion-aware")
    parser.add_argument("--consumption", choices=CONSUMPTIONS, default="at-most")
    parser.add_argument("--consumption-rows", type=int, default=200)
    parser.add_argument("--fusion", choices=get_args(Fusion), default="full")
    parser.add_argument("--rate", type=float, nargs="+", required=True, help="one load after the other")
    parser.add_argument("--tick", type=float, default=0.005, help="seconds between two batches")
    parser.add_argument("--warm-up", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    for rate in given.rate:
        print(json.dumps(one(given, rate)), flush=True)


def one(given: argparse.Namespace, rate: float) -> dict[str, Any]:
    """One load."""
    told = [0]

    def send(instance: Instance, sent: Sequence[PlainMessage]) -> None:
        told[0] += len(sent)

    run = flow_run(given.application, given.fusion)
    feed = Feed(rate, given.tick, time_goes_on=given.application in BY_TIME)
    if given.policy == LOOP:
        return looped(run, feed, given.warm_up, given.seconds, told)
    return pooled(run, _pool(given, send), feed, given.warm_up, given.seconds, told)


def _pool(given: argparse.Namespace, send: Send) -> Pool:
    if given.policy == OWPOA:
        take = CONSUMPTIONS[given.consumption](given.consumption_rows)
        return ThreadPerInstance(SystemClock(), consumption=take, send=send)
    return make_pool(
        SystemClock(), policy=given.policy, consumption=given.consumption, consumption_rows=given.consumption_rows,
        workers=1, send=send,
    )  # fmt: skip


if __name__ == "__main__":
    main()
