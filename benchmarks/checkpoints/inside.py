"""`python -m benchmarks.checkpoints.inside WHAT FOLDER`: what is measured in a process of its own; says JSON."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import resource
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks.checkpoints.engine import Engine
from benchmarks.checkpoints.flow import LONG_S, Messages, document, shuffled
from edgert.core.clock import VirtualClock
from edgert.core.system_clock import SystemClock
from edgert.runtime.interpreter import Garbage

WINDOW_S: Final = 60.0
"""Of the flow whose wear is measured: each key is shipped once a minute."""
FEW: Final = 100
"""Keys of the messages that come during a checkpoint."""
WARM_UP_S: Final = 60
"""Simulated, before wear is measured."""


async def overhead(folder: Path, keys: int, messages: int, pairs: int) -> dict[str, Any]:
    """The same messages with one checkpoint in their midst and without, by turns; seconds each took. Every key is
    among them, so all of the state is written each time, and merged now and then."""
    engine = Engine(folder, SystemClock())
    await engine.start(document(LONG_S))
    order = itertools.islice(itertools.cycle(shuffled(keys)), messages)
    reads = list(Messages().reads(order, qos=0))
    first = len(reads) // 4

    async def run(*, forced: bool) -> tuple[float, float]:
        cpu, began = _cpu_s(), time.perf_counter()
        await engine.feed(reads[:first])
        task = asyncio.create_task(engine.checkpoint()) if forced else None
        await engine.feed(reads[first:])
        if task:
            await task
        took = time.perf_counter() - began
        await engine.checkpointer.compaction.done()
        return took, _cpu_s() - cpu

    for _ in range(2):
        await run(forced=True)
    with_one: list[tuple[float, float]] = []
    without: list[tuple[float, float]] = []
    for pair in range(pairs):
        for forced in (True, False) if pair % 2 else (False, True):
            (with_one if forced else without).append(await run(forced=forced))
    compactions = engine.database.compactions
    await engine.stop()
    return {"with": with_one, "without": without, "messages": messages, "compactions": compactions}


def _cpu_s() -> float:
    """Of this process, and of those that merged for it and have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


async def pauses(folder: Path, keys: int, dirty: int, rounds: int) -> dict[str, Any]:
    """Checkpoints with `dirty` of `keys` keys changed, while messages come as fast as they can: of few keys, so that
    it makes no difference to what is written whether they come before the pause or behind it."""
    engine = Engine(folder, SystemClock())
    await engine.start(document(LONG_S))
    order, messages, database = shuffled(keys), Messages(), engine.database
    await engine.feed(messages.reads(order, qos=0))
    await engine.checkpoint()
    await engine.checkpointer.compaction.done()
    told: list[dict[str, Any]] = []

    def reads(number: int) -> list[bytes]:
        at = number * dirty % keys
        return list(messages.reads(order[at : at + dirty], qos=1))

    for number in range(rounds):
        await engine.feed(reads(number))
        coming = list(messages.reads(itertools.islice(itertools.cycle(order[:FEW]), dirty), qos=0))
        merging, wrote = engine.checkpointer.compaction.under_way, engine.write_bytes
        engine.longest_s = 0.0
        task = asyncio.create_task(engine.checkpoint())
        await asyncio.sleep(0)
        await engine.feed(coming)
        took_s = await task
        said = database.written
        told.append({
            "pause_ms": engine.checkpointer.status.pause_ms, "took_ms": took_s * 1e3,
            "longest_ms": engine.longest_s * 1e3, "merging": merging or engine.checkpointer.compaction.under_way,
            "written": engine.write_bytes - wrote, "delta": said.delta, "ids": said.ids, "queue": said.queue,
        })  # fmt: skip
    owed = len(engine.ingest.inbox.owed)
    await engine.stop()
    return {"rounds": told, "owed": owed}


async def wear(folder: Path, keys: int, rate: int, interval_s: int, seconds: int) -> dict[str, Any]:
    """So many seconds on a virtual clock, at QoS 1, with all that they bring to the database; bytes written to disk.
    What is shipped is acknowledged as a collector does it."""
    clock = VirtualClock()
    engine = Engine(folder, clock)
    await engine.start(document(WINDOW_S, interval_s))
    run, messages, order = engine.run, Messages(), itertools.cycle(shuffled(keys))
    landed = 0

    def land() -> int:
        """On the store thread: what the uplink does."""
        database, acked = engine.database, 0
        for stream, _ in database.outbox_streams():
            entries = database.departing(*stream, 0, 64)
            database.acknowledged({stream: entries[-1].sequence})
            acked += len(entries)
        return acked

    for second in range(WARM_UP_S + seconds):
        if second == WARM_UP_S:
            before, commits = engine.write_bytes, engine.checkpointer.status.commits
        clock.advance(1.0)
        await engine.feed(messages.reads(itertools.islice(order, rate), qos=1))
        engine.host.tick([run])
        if second % interval_s == interval_s - 1:
            await engine.checkpoint()
            landed += await engine.store(land)
    commits = engine.checkpointer.status.commits - commits
    await engine.stop()
    return {"bytes": engine.write_bytes - before, "commits": commits, "landed": landed, "shipped": run.rows_shipped}


def main() -> None:
    """Runs one of them."""
    parser = argparse.ArgumentParser("inside")
    parser.add_argument("what", choices=("overhead", "pauses", "wear"))
    parser.add_argument("folder", type=Path)
    for name in ("keys", "messages", "pairs", "dirty", "rounds", "rate", "interval", "seconds"):
        parser.add_argument(f"--{name}", type=int, default=0)
    given = parser.parse_args()
    work: dict[str, Callable[[], Coroutine[Any, Any, dict[str, Any]]]] = {
        "overhead": lambda: overhead(given.folder, given.keys, given.messages, given.pairs),
        "pauses": lambda: pauses(given.folder, given.keys, given.dirty, given.rounds),
        "wear": lambda: wear(given.folder, given.keys, given.rate, given.interval, given.seconds),
    }
    Garbage(time.monotonic())  # as in the gateway
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(work[given.what]())), flush=True)


if __name__ == "__main__":
    main()
