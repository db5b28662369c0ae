"""The product's own pool on a virtual clock: its workers are events instead of threads, so a run can be repeated."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from edgert.core.clock import VirtualClock
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from edgert.runtime.instance.turn import Turn
from edgert.runtime.pool.pool import Pool


class VirtualWorkers:
    """K workers of `pool`, which is not started. `cost_s` says how long a turn takes; a lent thread's takes none."""

    def __init__(self, pool: Pool, clock: VirtualClock, workers: int, cost_s: Callable[[Instance, int], float]) -> None:
        self.pool, self.clock, self.free, self.cost_s = pool, clock, workers, cost_s
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self.after_each: Callable[[], None] = lambda: None
        self.meanwhile: Callable[[Instance], None] = lambda instance: None
        """Called while a turn of an instance is under way."""
        self.taken: Counter[str] = Counter()
        self.given: Counter[str] = Counter()
        """By instance: the most bytes that one turn took, and gave to one other; of lent turns too."""
        self.run_turn = pool.run_turn
        if workers:
            pool.run_turn = self._measured  # type: ignore[method-assign]

    def at(self, time: float, act: Callable[[], None]) -> None:
        """`act` is called when the clock shows `time`, seconds."""
        self._order += 1
        heappush(self._events, (time, self._order, act))

    def run(self, until: float = math.inf) -> None:
        """Until nothing is to come any more, or the clock shows `until`."""
        self.dispatch()
        while self._events and self._events[0][0] <= until:
            time, _, act = heappop(self._events)
            self.clock.advance(max(0.0, time - self.clock.monotonic()))
            act()
            self.dispatch()
            self.after_each()

    def dispatch(self) -> None:
        """Free workers take what the pool gives them."""
        pool = self.pool
        while self.free:
            with pool.lock:
                number = pool.backpressure.choose(self.clock.monotonic())
                if number is None:
                    return
                assert number not in pool.backpressure.resting
                instance, entries = pool.take(number)
                assert not over_behind(instance)
            rows = sum(len(entry.batch) for entry in entries)
            turn = pool.run_turn(instance, entries)
            self.free -= 1
            took = self.cost_s(instance, rows)
            self.at(self.clock.monotonic() + took, lambda i=instance, t=turn: self._end(i, t))  # type: ignore[misc]

    def _measured(self, instance: Instance, entries: list[Entry]) -> Turn[Instance]:
        """A turn, of a worker or of a lent thread."""
        assert instance.schedule.number not in self.pool.backpressure.held
        self.meanwhile(instance)
        taken = sum(entry.batch.size for entry in entries)
        turn = self.run_turn(instance, entries)
        given: Counter[int] = Counter()
        for target, batch in turn.out:
            given[target.instance.schedule.number] += batch.size
        most = max(given.values(), default=0)
        self.given[instance.name] = max(self.given[instance.name], most)
        self.taken[instance.name] = max(self.taken[instance.name], taken)
        return turn

    def _end(self, instance: Instance, turn: Turn[Instance]) -> None:
        turn.ended = self.clock.monotonic()
        with self.pool.lock:
            self.pool.settle_turn(instance, turn)
        self.free += 1
        for until in self.pool.backpressure.resting.values():  # what a sleeping worker's alarm does
            self.at(until, lambda: None)


def over_behind(instance: Instance) -> bool:
    """Whether a queue that it feeds is over its budget."""
    return any(one.queue.over for targets in instance.edges.outputs.values() for to in targets for one in to.instances)


def could_run(pool: Pool, instances: Sequence[Instance]) -> list[Instance]:
    """Instances that a free worker should have taken: rows wait, nothing is in the way, and there is room behind."""
    return [
        i for i in instances
        if i.queue.rows and not i.schedule.running
        and i.schedule.number not in (pool.backpressure.held | pool.backpressure.resting.keys()) and not over_behind(i)
    ]  # fmt: skip
