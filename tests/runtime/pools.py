"""Instances that note what comes, for tests of the pool. Who has to wait does so on events with a deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from edgert.core.batch import Batch
from edgert.core.system_clock import SystemClock
from edgert.operators.base.logic import Emission, Logic, Now
from edgert.runtime.instance.edges import Target
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.source_queue import SourceQueue
from edgert.runtime.pool.pool import Pool
from edgert.runtime.pool.thread_roles import FAST_TURNS
from tests.waiting import wait_until

DEADLINE_S = 60.0


class Pass(Logic):
    """Notes what comes, that nobody else runs it, and gives it on."""

    __module__ = "edgert.tests"  # as ours it says itself what its batches take
    waits: bool | None = False

    def __init__(self, act: Callable[[Batch], object] = lambda batch: None) -> None:
        super().__init__()
        self.seen: list[tuple[int, int]] = []
        self.inside = 0
        self.overlapped = False
        self.act = act

    def process(self, batch: Any, source: int, now: Now) -> Sequence[Emission]:
        self.inside += 1
        self.overlapped |= self.inside > 1
        self.act(batch)
        self.seen += [(source, row["n"]) for row in batch.rows]
        self.inside -= 1
        return (Emission(0, Batch(batch.rows, batch.arrival, batch.watermark)),)


class Grow(Pass):
    """Gives on batches of 10 bytes per row."""

    __module__ = "edgert.tests"

    def process(self, batch: Any, source: int, now: Now) -> Sequence[Emission]:
        super().process(batch, source, now)
        return (Emission(0, Batch(batch.rows, batch.arrival, batch.watermark, 10 * len(batch.rows))),)


def instance(name: str, logic: Logic, *targets: Instance) -> Instance:
    made = Instance(name, (name,), "stateless", logic, SourceQueue(1 << 20))
    for target in targets:
        made.edges.outputs.setdefault(0, []).append(Target(target, 0))
    return made


def known(*instances: Instance) -> None:
    """The pool has seen by now that they are fast, so a lent thread may run them."""
    for one in instances:
        one.schedule.fast_turns = FAST_TURNS


def rows(*numbers: int) -> Batch:
    return Batch([{"time": 0.0, "source": "a", "n": n} for n in numbers], 0.0, size=len(numbers))


def until_asleep(pool: Pool, workers: int = 1) -> None:
    """Returns when so many workers sleep: whoever is to run now has to wake one."""

    def asleep() -> bool:
        with pool.lock:
            return pool._asleep == workers

    wait_until(asleep, f"{workers} workers to sleep", DEADLINE_S)


@contextmanager
def running(*instances: Instance, **options: Any) -> Iterator[Pool]:
    pool = Pool(SystemClock(), **options)
    pool.add(instances)
    pool.start()
    try:
        yield pool
    finally:
        pool.stop()
