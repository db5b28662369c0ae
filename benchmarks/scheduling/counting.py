"""What counting costs, what the policy costs, and all that the pool does beside the operators' work: PRED on one
thread, fed from memory, by turns with and without counters in one process."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, get_args

from benchmarks.riotbench.engine import Feed, flow_run
from edgert.codecs.shapes import Body, Getter
from edgert.core.batch import RawBatch
from edgert.core.system_clock import SystemClock
from edgert.flow.physical import Fusion
from edgert.operators.base.logic import Emission, Now
from edgert.operators.fusion.compiled_region import CompiledRegion
from edgert.operators.fusion.region import Region, StageInput, StageStep
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from edgert.runtime.instance.turn import Turn
from edgert.runtime.pool.pool import Pool
from edgert.runtime.pool.thread_roles import FAST_TURNS
from edgert.scheduling.congestion_aware import CongestionAware
from edgert.scheduling.consumption import at_most

SEGMENTS: Final = 60
ROUNDS: Final = 40
ROWS: Final = 200
TOLD: Final = frozenset(("rows_added", "rows_taken", "busy", "free", "choose"))


class Uncounted(Pool):
    """A pool that counts nothing: it only feeds, runs and hands on."""

    def _put(self, instance: Instance, entry: Entry, *, accepted: bool = False) -> None:
        change, _ = instance.queue.put(entry)
        self.policy.rows_added(instance.schedule.number, change)

    def run_turn(self, instance: Instance, entries: list[Entry]) -> Turn[Instance]:
        clock = self._clock
        turn = instance.run(entries, Now(clock.monotonic(), clock.wall()))
        if turn.messages:
            instance.send_safely(turn.messages, self._send)
            turn.messages = ()
        entries.clear()
        turn.ended = clock.monotonic()
        instance.schedule.fast_turns = FAST_TURNS
        return turn


def uncount(region: Region) -> None:
    """From now on its stages count no rows, and are not timed. (What the source takes is one addition per batch.)"""
    region.sampled_s = math.inf
    if isinstance(region, CompiledRegion):
        body = region.body

        def uncounted(values: Mapping[str, Getter]) -> Body:
            made = body(values)
            return replace(made, finish=[line for line in made.finish if not line.startswith(("took[", "gave["))])

        region.body = uncounted  # type: ignore[method-assign]
        region._plan()

    def through(waiting: dict[int, StageInput], now: Now, steps: Sequence[StageStep] = ()) -> list[Emission]:
        out: list[Emission] = []
        for step in region.ordinary[min(waiting, default=0) :]:
            if step.stage not in waiting:
                continue
            for source, batch in waiting.pop(step.stage):
                emissions = step.process(batch, source, now)
                if step.boundary.logic.messages:
                    region.take_messages(step.boundary.logic)
                region.pass_on(step, emissions, waiting, out)
        return out

    region.through = through  # type: ignore[method-assign]


class Noted(CongestionAware):
    """A policy that notes what it is told and asked."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in TOLD:
            return found

        def noting(*given: Any) -> Any:
            self.calls.append((name, given))
            return found(*given)

        return noting


def measure(rows: int, fusion: Fusion, rounds: int = ROUNDS, segments: int = SEGMENTS) -> dict[str, Any]:
    """Ratios with / without of CPU time, segment by segment; the pool's own time, that of its policy, and T_S, as a
    part of the operators' time (T_C), all by the clock that instances go by; and CPU time as a part of that."""
    pools: list[tuple[Pool, Any]] = []
    for kind in (Pool, Uncounted):
        pool, run = kind(SystemClock(), workers=0, consumption=at_most(rows)), flow_run("pred", fusion)
        pool.add(run.all)
        for instance in run.all:
            instance.schedule.fast_turns = FAST_TURNS
            if kind is Uncounted and isinstance(instance.logic, Region):
                uncount(instance.logic)
        pools.append((pool, run))
    feed = Feed(1.0, 1.0)
    batches = [feed.batch(n * ROWS, (n + 1) * ROWS, time.monotonic()) for n in range(rounds)]
    told = _told(rows, fusion, batches)
    ratios, own, policy, waited, shares = [], [], [], [], []
    for segment in range(segments):
        spent = []
        for pool, run in pools if segment % 2 else reversed(pools):
            busy = sum(instance.counters.busy_s for instance in run.all)
            ready = sum(instance.counters.scheduling_s for instance in run.all)
            began, cpu = time.monotonic(), time.process_time()
            work(pool, run, batches)
            spent.append(time.process_time() - cpu)
            passed = time.monotonic() - began
            shares.append(spent[-1] / passed)
            if type(pool) is Pool:
                working = sum(instance.counters.busy_s for instance in run.all) - busy
                own.append((passed - working) / working)
                waited.append((sum(i.counters.scheduling_s for i in run.all) - ready) / working)
                policy.append(_again(told) / working)
        counted, uncounted = spent if segment % 2 else reversed(spent)
        ratios.append(counted / uncounted)
    return {
        "counted": statistics.median(ratios),
        "own": statistics.median(own),
        "policy": statistics.median(policy),
        "waited": statistics.median(waited),
        "cpu_share": statistics.median(shares),
    }


def _told(rows: int, fusion: Fusion, batches: Sequence[RawBatch]) -> list[tuple[str, tuple[Any, ...]]]:
    """What a policy is told and asked while the `batches` are worked on."""
    policy, run = Noted(), flow_run("pred", fusion)
    pool = Pool(SystemClock(), workers=0, consumption=at_most(rows), policy=policy)
    pool.add(run.all)
    policy.calls.clear()
    work(pool, run, batches)
    return policy.calls


def _again(told: Sequence[tuple[str, tuple[Any, ...]]]) -> float:
    """How long a policy takes for all that, by itself."""
    policy = CongestionAware()
    for number in {given[0] for name, given in told if name != "choose"}:
        policy.add(number)
    calls = [(getattr(policy, name), given) for name, given in told]
    began = time.monotonic()
    for call, given in calls:
        call(*given)
    return time.monotonic() - began


def work(pool: Pool, run: Any, batches: Sequence[RawBatch]) -> None:
    ((_, (source,)),) = run.sources()
    for batch in batches:
        pool.put([(source, 0, batch)], wake=False)
        pool.lend(1.0)
        while not all(instance.idle for instance in run.all):
            for instance in run.all:
                instance.schedule.fast_turns = FAST_TURNS  # there is no worker to whom a slow one could be left
            pool.lend(1.0)


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser("counting")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--fusion", choices=get_args(Fusion), required=True)
    given = parser.parse_args()
    print(json.dumps(measure(given.rows, given.fusion)), flush=True)


if __name__ == "__main__":
    main()
