"""Instances that stand still for a while: for a checkpoint, to be taken out, or until they have nothing left to do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from edgert.core.clock import Clock
from edgert.runtime.instance.instance import Instance
from edgert.runtime.pool.backpressure import Backpressure
from edgert.scheduling.policies import Policy


class Quiesce:
    """The part of a pool beside its turns: its lock, pauses of instances and the threads that wait for them, and the
    policy's knowledge of graph and costs.

    A thread that ends a turn wakes `_quiet` if another thread is `_watching`.
    """

    def __init__(self, clock: Clock, policy: Policy) -> None:
        self._clock = clock
        self.policy = policy
        self.lock = threading.Lock()
        """To be held also for looks at several queues that must agree."""
        self._work = threading.Condition(self.lock)
        """Waited for by workers."""
        self._asleep = 0
        """How many do."""
        self._quiet = threading.Condition(self.lock)
        self._watching = 0
        """Threads that wait for an instance to come to rest."""
        self._instances: dict[int, Instance] = {}
        self.backpressure = Backpressure(policy, self._instances)

    def hold(self, instances: Sequence[Instance], timeout_s: float) -> bool:
        """Stops `instances` at a batch boundary; false (and nothing is held) when they reach none in time."""
        self.begin_hold(instances)
        with self.lock:
            if self._wait_quiet(lambda: not any(i.schedule.running for i in instances), timeout_s):
                return True
            self._let_go(instances)
            return False

    def begin_hold(self, instances: Sequence[Instance]) -> None:
        """Begins to hold the instances, without waiting for the turns under way: see `hold` and `at_rest`."""
        with self.lock:
            for instance in instances:
                self.backpressure.hold(instance.schedule.number)

    def at_rest(self, instances: Sequence[Instance]) -> bool:
        """True if none of `instances` is running."""
        with self.lock:
            return not any(instance.schedule.running for instance in instances)

    def release(self, instances: Sequence[Instance]) -> None:
        """Lets held instances go on."""
        with self.lock:
            self._let_go(instances)

    def _let_go(self, instances: Sequence[Instance]) -> None:
        now = self._clock.monotonic()
        for instance in instances:
            self.backpressure.let_go(instance.schedule.number, now)
        self._work.notify_all()

    def crowd(self, number: int) -> None:
        """Makes the feeders of instance `number`, which runs in another process, wait as if its queue were over its
        budget here."""
        with self.lock:
            self.backpressure.over.add(number)

    def relieve(self, number: int) -> None:
        """Ends `crowd` for that instance."""
        with self.lock:
            self._relieved(number)

    def _relieved(self, number: int) -> None:
        """Frees the instances that wait for room in this queue, now within its budget."""
        freed = self.backpressure.relieved(number, self._clock.monotonic())
        if freed and self._asleep:
            self._work.notify(freed)

    def _connect(self) -> None:
        """Tells the policy the graph to its sinks, with what runs in other processes behind an instance here."""
        known, graph = self._instances, dict[int, list[int]]()
        waiting = list(known.values())
        for instance in waiting:
            if instance.schedule.number not in graph:
                behind = [other for other in instance.edges.reaches() if other.remote or other.schedule.number in known]
                graph[instance.schedule.number] = [other.schedule.number for other in behind]
                waiting += behind
        self.policy.connect(graph)

    def profile(self) -> None:
        """Tells the policy what rows have cost and given since the last call, and looks for queues in front of which
        others wait in vain; to be called every second or so."""
        with self.lock:
            found = {n: one.schedule.take_profile(one.counters, one.edges) for n, one in self._instances.items()}
            if profiles := {number: profile for number, profile in found.items() if profile}:
                self.policy.profile(profiles)
            if (freed := self.backpressure.look(self._clock.monotonic())) and self._asleep:
                self._work.notify(freed)

    def weigh(self, instances: Sequence[Instance], weight: float) -> None:
        """Gives each of the pool's `instances` that weight (1 at first): while the workers cannot keep up, the time of
        their turns is to that of others as the weights are. A copy of an operator has a weight of its own.

        Raises ValueError for a weight that is none, `EdgertError` where the pool has no weights."""
        with self.lock:
            policy = self.policy
            if not policy.weighed:
                for instance in self._instances.values():
                    instance.schedule.charged_s = instance.counters.busy_s
            for instance in instances:
                policy.weigh(instance.schedule.number, weight)
            self._work.notify_all()

    def _charge(self, instance: Instance) -> None:
        """Tells the policy how long the turns of an instance took that have ended, and were counted."""
        busy_s = instance.counters.busy_s
        self.policy.ran(instance.schedule.number, busy_s - instance.schedule.charged_s)
        instance.schedule.charged_s = busy_s

    def wait_empty(self, instances: Sequence[Instance], timeout_s: float) -> bool:
        """Waits until `instances` have nothing left to do; false when time ran out."""
        with self.lock:
            return self._wait_quiet(lambda: all(instance.idle for instance in instances), timeout_s)

    def _wait_quiet(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        self._watching += 1
        try:
            return self._quiet.wait_for(condition, timeout_s)
        finally:
            self._watching -= 1
