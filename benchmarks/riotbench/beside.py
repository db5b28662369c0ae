"""What a row costs in the engine, in bare loops over the same operator functions, and written by hand: in one process,
by turns of 1.25 s each, since a machine's speed may change from one second to the next.

Each side is warmed up first: a gateway runs for years, and its first twenty turns are left to a thread of their own
until they have shown to be short. Then it works on what is due while it has its turn, whose first fifth does not count:
till then it brings back into the processor's caches what another has driven out. What the pool's own threads do while
the engine has its turn is counted to it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.riotbench.bare_loop import operators_of
from benchmarks.riotbench.by_hand import pred
from benchmarks.riotbench.engine import LEND_S, Feed, Seen, flow_run, outcome
from benchmarks.riotbench.flows import APPLICATIONS, BY_TIME
from benchmarks.riotbench.probe import BY_HAND, ENGINE, FUSED_LOOP, LOOP
from edgert.core.batch import RawBatch
from edgert.core.system_clock import SystemClock
from edgert.operators.base.logic import PlainMessage
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.instance import Instance
from edgert.runtime.pool.from_settings import make_pool
from edgert.runtime.pool.pool import Pool

WARM_UP: Final = 50
"""Batches of a hundred that each side is given before."""
TURN_S: Final = 1.25
COLD_S: Final = 0.25
"""Of each turn, in which it does not count."""


@dataclass(slots=True)
class Side:
    """One way to do it."""

    name: str
    step: Callable[[RawBatch], None]
    told: list[int]
    """Messages that it has sent."""
    rows: int = 0
    cpu_s: float = 0.0


def counted(told: list[int]) -> Callable[[Sequence[object]], None]:
    """Adds how many messages it is given to `told`."""

    def send(sent: Sequence[object]) -> None:
        told[0] += len(sent)

    return send


def pooled(run: FlowRun, told: list[int]) -> tuple[Callable[[RawBatch], None], Pool]:
    """The engine, as a gateway has it by default."""

    def send(instance: Instance, sent: Sequence[PlainMessage]) -> None:
        told[0] += len(sent)

    pool = make_pool(
        SystemClock(), policy="congestion-aware", consumption="at-most", consumption_rows=200, workers=1, send=send
    )
    pool.add(run.all)
    pool.start()
    sources = [instance for _, copies in run.sources() for instance in copies]

    def step(batch: RawBatch) -> None:
        pool.put([(source, 0, batch) for source in sources], wake=False)
        pool.lend(LEND_S)

    return step, pool


def compared(
    application: str, feed: Feed, seconds: float, turn_s: float = TURN_S, cold_s: float = COLD_S
) -> dict[str, Any]:
    """The sides by name, each with CPU per row (µs), the rows that this is of, and messages `told` from the first
    batch of the warm-up on; and what the engine itself has seen."""
    run = flow_run(application, "full")
    told: list[list[int]] = [[0], [0], [0], [0]]
    engine_step, pool = pooled(run, told[0])
    sides = [
        Side(ENGINE, engine_step, told[0]),
        Side(LOOP, operators_of(flow_run(application, "chains"), told[1]), told[1]),
        Side(FUSED_LOOP, operators_of(flow_run(application, "full"), told[2]), told[2]),
    ]
    if application == "pred":
        sides.append(Side(BY_HAND, pred(counted(told[3])), told[3]))
    for side in sides:
        for number in range(WARM_UP):
            side.step(feed.batch(100 * number, 100 * (number + 1), time.monotonic()))
            pool.wait_empty(run.all, 10.0)
    before: Seen | None = None
    turns = max(1, round(seconds / (turn_s - cold_s))) * len(sides)
    at, counts, began = 0, False, time.monotonic()
    everything = mine = 0.0
    for batch in feed.due((turns + 0.5) * turn_s, 100 * WARM_UP):  # the last half only ends the turn before it
        turn, into = divmod(time.monotonic() - began, turn_s)
        side = sides[at % len(sides)]
        if turn > at:
            if counts:
                now, now_mine = time.process_time(), time.thread_time()
                side.cpu_s += now - everything if side.name == ENGINE else now_mine - mine
            at, counts, side = int(turn), False, sides[int(turn) % len(sides)]
            pool.profile()  # every second or so, as a gateway does
        if not counts and into >= cold_s and at < turns:
            counts, everything, mine = True, time.process_time(), time.thread_time()
            before = before or Seen(run, told[0])
        side.step(batch)
        if counts:
            side.rows += len(batch)
    assert before is not None
    pool.wait_empty(run.all, 10.0)
    seen = outcome(before, Seen(run, told[0]), sides[0].rows, run, 0)
    pool.stop()
    costs = {s.name: {"cpu_us": s.cpu_s / max(1, s.rows) * 1e6, "rows": s.rows, "told": s.told[0]} for s in sides}
    return seen | {"sides": costs}


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser("beside")
    parser.add_argument("--application", choices=APPLICATIONS, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--tick", type=float, default=0.005, help="seconds between two batches")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each side")
    given = parser.parse_args()
    feed = Feed(given.rate, given.tick, time_goes_on=given.application in BY_TIME)
    print(json.dumps(compared(given.application, feed, given.seconds)), flush=True)


if __name__ == "__main__":
    main()
