"""One worker per operator: a thread for each instance, and the OS decides. The baseline of EdgeWise (section 2.3).

A baseline to measure against: Storm and Flink work like this. It shares queues, instances and pauses with the pool.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from edgert.core.clock import Clock
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from edgert.runtime.instance.turn import Turn
from edgert.runtime.pool.backpressure import Backpressure
from edgert.runtime.pool.pool import Pool, Send
from edgert.scheduling.consumption import Consumption
from edgert.scheduling.lazy_heap import May
from edgert.scheduling.policies import Policy
from edgert.scheduling.profile import Profile

OWPOA: Final = "owpoa"
"""Its name in the place of a policy: one worker per operator architecture."""


class Unscheduled:
    """A policy that is never asked."""

    def add(self, number: int) -> None: ...
    def remove(self, number: int) -> None: ...
    def connect(self, downstream: Mapping[int, Sequence[int]]) -> None: ...
    def profile(self, profiles: Mapping[int, Profile]) -> None: ...
    def weigh(self, number: int, weight: float) -> None: ...
    def ran(self, number: int, took_s: float) -> None: ...
    def rows_added(self, number: int, rows: int) -> None: ...
    def rows_taken(self, number: int, rows: int) -> None: ...
    def busy(self, number: int) -> None: ...
    def free(self, number: int) -> None: ...
    def choose(self, now: float, may: May | None = None) -> int | None:
        """Nothing: each instance has its own thread."""

    weighed = False
    waiting = (0,)
    """Somebody may always wait: nothing goes past the queues."""


class Ringing(Backpressure):
    """Backpressure that wakes the thread of an instance once it may run."""

    def __init__(self, policy: Policy, instances: dict[int, Instance], ring: Callable[[int], None]) -> None:
        super().__init__(policy, instances)
        self._ring = ring

    def free(self, number: int, now: float) -> None:
        super().free(number, now)
        if not self._instances[number].schedule.running:
            self._ring(number)


class ThreadPerInstance(Pool):
    """A pool whose workers each serve one instance, and sleep while it has nothing to do."""

    def __init__(
        self, clock: Clock, *, consumption: Consumption | None = None, send: Send = lambda instance, messages: None
    ) -> None:
        super().__init__(clock, workers=0, policy=Unscheduled(), consumption=consumption, send=send)
        self.backpressure = Ringing(self.policy, self._instances, lambda number: self._bell(number).notify())
        self._bells: dict[int, threading.Condition] = {}
        self._started = False

    def start(self) -> None:
        self._started = True
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float | None = None) -> None:
        with self.lock:
            self._stopping = True
            for bell in self._bells.values():
                bell.notify()
        super().stop(timeout_s)

    def add(self, instances: Iterable[Instance]) -> None:
        added = list(instances)
        super().add(added)
        self._threads = [thread for thread in self._threads if thread.is_alive() or not self._started]
        for instance in added:
            thread = threading.Thread(target=self._serve, args=(instance,), name=f"worker {instance.name}", daemon=True)
            self._threads.append(thread)
            if self._started:
                thread.start()

    def remove(self, instances: Iterable[Instance]) -> None:
        removed = list(instances)
        super().remove(removed)
        with self.lock:
            for instance in removed:
                if bell := self._bells.pop(instance.schedule.number, None):
                    bell.notify()

    def lend(self, time_s: float, *, lends_again: bool = False) -> bool:
        """Does nothing: no thread is lent here, as each instance has its own."""
        return False

    def _put(self, instance: Instance, entry: Entry, *, accepted: bool = False) -> None:
        super()._put(instance, entry, accepted=accepted)
        if not instance.schedule.running:
            self._bell(instance.schedule.number).notify()

    def _bell(self, number: int) -> threading.Condition:
        """Under the lock: rows may come to an instance before its thread runs."""
        return self._bells.setdefault(number, threading.Condition(self.lock))

    def _serve(self, instance: Instance) -> None:
        number = instance.schedule.number
        with self.lock:
            bell = self._bell(number)
        turn: Turn[Instance] | None = None
        while True:
            with self.lock:
                backpressure = self.backpressure
                if turn is not None:
                    self.settle_turn(instance, turn)
                while not self._stopping and number in self._instances:
                    until = backpressure.resting.get(number, 0.0)
                    rest = until - self._clock.monotonic() if backpressure.resting else 0.0
                    if instance.queue.rows and number not in backpressure.held and rest <= 0.0:
                        if backpressure.resting.pop(number, None) is not None:
                            instance.schedule.ready = self._clock.monotonic()
                        if not backpressure.stalls(instance):
                            break
                    bell.wait(rest if rest > 0.0 else None)
                else:
                    return
                _, entries = self.take(number)
            turn = self.run_turn(instance, entries)
