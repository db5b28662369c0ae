"""What counting costs, and what all that the pool does beside the operators' work: PRED on one thread, fed from memory,
by turns with and without counters in one process."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.riotbench.engine import Feed, flow_run
from edgert.core.batch import Batch, RawBatch
from edgert.core.system_clock import SystemClock
from edgert.operators.logic import Now
from edgert.runtime.instance import Instance, Turn
from edgert.runtime.pool import FAST_TURNS, Pool
from edgert.runtime.queue import Entry
from edgert.runtime.targets import Target
from edgert.scheduling.consumption import at_most

SEGMENTS: Final = 60
ROUNDS: Final = 40
ROWS: Final = 200


class Uncounted(Pool):
    """A pool that counts nothing: it only feeds, runs and hands on."""

    def _put(self, target: Target, batch: Batch | RawBatch, now: float, *, accepted: bool = False) -> None:
        change, _ = target.instance.queue.put(Entry(target.source, batch, now, 0.0, target.producer))
        self._policy.rows_added(target.instance.number, change)

    def _turn(self, instance: Instance, entries: Sequence[Entry]) -> Turn:
        clock = self._clock
        turn = instance.run(entries, Now(clock.monotonic(), clock.wall()))
        turn.ended = clock.monotonic()
        instance.fast_turns = FAST_TURNS
        return turn


def measure(rows: int) -> dict[str, Any]:
    """Ratios with / without, segment by segment; and the pool's own time as a part of the operators'."""
    pools: list[tuple[Pool, Any]] = []
    for kind in (Pool, Uncounted):
        pool, run = kind(SystemClock(), workers=0, consumption=at_most(rows)), flow_run("pred", "full")
        pool.add(run.all)
        for instance in run.all:
            instance.fast_turns = FAST_TURNS
        pools.append((pool, run))
    feed = Feed(1.0, 1.0)
    batches = [feed.batch(n * ROWS, (n + 1) * ROWS, time.monotonic()) for n in range(ROUNDS)]
    ratios, own = [], []
    for segment in range(SEGMENTS):
        spent = []
        for pool, run in pools if segment % 2 else reversed(pools):
            busy = sum(instance.counters.busy_s for instance in run.all)
            cost = _work(pool, run, batches)
            spent.append(cost)
            if type(pool) is Pool:
                working = sum(instance.counters.busy_s for instance in run.all) - busy
                own.append((cost - working) / working)
        counted, uncounted = spent if segment % 2 else reversed(spent)
        ratios.append(counted / uncounted)
    return {"counted": statistics.median(ratios), "own": statistics.median(own)}


def _work(pool: Pool, run: Any, batches: Sequence[RawBatch]) -> float:
    ((_, (source,)),) = run.sources()
    began = time.process_time()
    for batch in batches:
        pool.put([(source, 0, batch)], wake=False)
        while any(instance.queue.entries for instance in run.all):
            for instance in run.all:
                instance.fast_turns = FAST_TURNS  # there is no worker to whom a slow one could be left
            pool.lend(1.0)
    return time.process_time() - began


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser("counting")
    parser.add_argument("--rows", type=int, required=True)
    print(json.dumps(measure(parser.parse_args().rows)), flush=True)


if __name__ == "__main__":
    main()
