"""Between a pool and its policy: reasons for which an instance with rows may not run, and what the policy is told.

held     a checkpoint or a pause stops the instance
resting  its first row failed, and is to be tried again later
stalled  a queue that it feeds is over its budget: its rows wait in its own queue, and so on up to the
         source, whose queue sheds

The policy is not told the reason: for the policy such an instance is busy. It is told the graph, costs and weights.

An instance that feeds several would keep all of them waiting for one that hangs. So a queue that stays over its budget
for `HANGS_S`, with not a row of it done meanwhile, sheds its own rows until half of it is free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.turn import Turn
from edgert.scheduling.lazy_heap import May
from edgert.scheduling.policies import Policy

log = logging.getLogger(__name__)

HANGS_S: Final = 10.0


class Backpressure:
    """Instances by number, `instances` as its pool keeps them. Not locked: the pool does that."""

    def __init__(self, policy: Policy, instances: dict[int, Instance]) -> None:
        self.policy = policy
        self._instances = instances
        self._next_number = 0
        self.held: set[int] = set()
        self.resting: dict[int, float] = {}
        """Resting instance → the end of its rest, monotonic seconds."""
        self.over: set[int] = set()
        """Instances with a queue over its budget."""
        self._stalled: dict[int, set[int]] = {}
        """Instance with a queue over its budget → the instances that feed it and wait for room."""
        self._standing: dict[int, tuple[int, float]] = {}
        """Instance with a queue over its budget → (rows that it has done, monotonic time since when that number has not
        changed)."""

    def add(self, instance: Instance) -> None:
        """Gives an instance its number; from now on the policy knows the instance, and the rows in its queue."""
        number, queue = self._next_number, instance.queue
        self._next_number += 1
        instance.schedule.number = number
        self._instances[number] = instance
        self.policy.add(number)
        self.check(instance)
        if queue.rows:
            self.policy.rows_added(number, queue.rows)

    def check(self, instance: Instance) -> None:
        """To be called when the queue of an instance has grown: if it is over its budget, its feeders wait."""
        if instance.queue.over:
            self.mark_full(instance.schedule.number)

    def mark_full(self, number: int) -> None:
        """Makes the feeders of instance `number` wait until `free_feeders`."""
        self.over.add(number)

    def hold(self, number: int) -> None:
        """Holds an instance from its next turn on; a turn under way goes on."""
        self.held.add(number)
        self.policy.busy(number)

    def let_go(self, number: int, now: float) -> None:
        """Releases an instance that may be held."""
        if number in self.held:
            self.held.discard(number)
            self.free(number, now)

    def free(self, number: int, now: float) -> None:
        """Makes an instance a candidate again, after a reason not to run ended; others may remain."""
        instance = self._instances[number]
        if instance.schedule.running:  # `Pool.settle_turn` frees it
            return
        instance.schedule.ready = now
        if number not in self.held and number not in self.resting:
            self.policy.free(number)

    def choose(self, now: float, may: May | None = None) -> int | None:
        """The instance that the policy chooses among those that may run."""
        if self.resting:
            for rested in [n for n, until in self.resting.items() if until <= now]:
                del self.resting[rested]
                self.free(rested, now)
        while True:
            number = self.policy.choose(now, may)
            if number is None or not self.stalls(self._instances[number]):
                return number
            self.policy.busy(number)

    def pick(self, now: float, may_run: Callable[[Instance], bool]) -> tuple[int | None, int]:
        """Returns the first instance that the caller may run, and how many there are for others, at least."""
        number = self.choose(now)
        if number is None or may_run(self._instances[number]):
            return number, 0
        others = {number}

        def may(number: int) -> bool:
            found = may_run(self._instances[number])
            if not found:
                others.add(number)
            return found

        return self.choose(now, may), len(others)

    def idle(self) -> bool:
        """True if there is no instance to choose, until new rows come."""
        return not (self.policy.waiting or self.resting or self.over)

    def stalls(self, instance: Instance) -> bool:
        """True if the instance must wait because a queue that it feeds is over its budget. There is no deadlock: the
        instance with that queue has rows and gets its turn, and the graph has no cycle."""
        if self.over:
            for fed in instance.edges.reaches():
                if fed.schedule.number in self.over:
                    self._stalled.setdefault(fed.schedule.number, set()).add(instance.schedule.number)
                    return True
        return False

    def look(self, now: float) -> int:
        """Begins the shedding of queues that hang, so that their feeders go on with other work. To be called every
        second or so; returns the number of instances that this frees."""
        before, self._standing = self._standing, {}
        for number in self.over & self._instances.keys():
            done = self._instances[number].done
            since = before[number][1] if before.get(number, (-1,))[0] == done else now
            self._standing[number] = done, since
        freed = 0
        for number, (_, since) in list(self._standing.items()):
            instance = self._instances[number]
            if instance.edges.beside and self._hangs(number, now):
                instance.queue.shedding = True
                freed += self.free_feeders(number, now)
                log.warning(
                    "%s has done none of the %d rows that wait for it for %.0f s, and its queue is full: what has no "
                    "room there is dropped, and counted, or what feeds it could not serve others", instance.name,
                    instance.queue.rows, now - since,
                )  # fmt: skip
        return freed

    def _hangs(self, number: int, now: float) -> bool:
        """True if the instance has done no row for `HANGS_S` and is in a long turn or rests, or if it waits for such
        an instance."""
        _, since = self._standing.get(number, (0, now))
        instance = self._instances.get(number)
        return (
            now - since >= HANGS_S
            and instance is not None
            and (
                (instance.schedule.running and now - instance.schedule.started >= HANGS_S)
                or number in self.resting
                or any(number in feeders and self._hangs(fed, now) for fed, feeders in self._stalled.items())
            )
        )

    def end_shedding(self, instance: Instance) -> None:
        """Ends the shedding of a queue once half of its budget is free."""
        queue = instance.queue
        if queue.size <= queue.budget_bytes // 2:
            queue.shedding = False
            log.info("%s takes rows again; its queue is below the limit", instance.name)

    def retry_later(self, instance: Instance, turn: Turn[Instance]) -> None:
        """A row failed and is to be tried again, or errors have made the turn long: all that was taken and is not done
        goes back, and waits, so that nothing overtakes. Without a time to wait for it is there for the next choice."""
        number, queue = instance.schedule.number, instance.queue
        self.policy.rows_added(number, queue.put_back(turn.back))
        instance.schedule.tried_before = True
        self.check(instance)
        self.resting[number] = turn.ended + turn.wait_s

    def free_feeders(self, number: int, now: float) -> int:
        """Frees the instances that wait for room in this queue, now within its budget. Returns how many."""
        self.over.discard(number)
        feeders = self._stalled.pop(number, ())
        for feeder in feeders:
            self.free(feeder, now)
        return len(feeders)

    def forget(self, number: int) -> None:
        """Forgets an instance that is gone; it waits for no queue any more. The caller frees those that wait for
        it."""
        del self._instances[number]
        self.held.discard(number)
        self.resting.pop(number, None)
        for feeders in self._stalled.values():
            feeders.discard(number)
        self.policy.remove(number)

    # -- what the policy is told

    def connect(self) -> None:
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
        """Tells the policy what rows have cost and given since the last call."""
        found = {n: one.schedule.take_profile(one.counters, one.edges) for n, one in self._instances.items()}
        if profiles := {number: profile for number, profile in found.items() if profile}:
            self.policy.profile(profiles)

    def weigh(self, instances: Iterable[Instance], weight: float) -> None:
        """See `Pool.weigh`."""
        if not self.policy.weighed:
            for instance in self._instances.values():
                instance.schedule.charged_s = instance.counters.busy_s
        for instance in instances:
            self.policy.weigh(instance.schedule.number, weight)

    def charge(self, instance: Instance) -> None:
        """Tells the policy how long the turns of an instance took that have ended, and were counted."""
        busy_s = instance.counters.busy_s
        self.policy.ran(instance.schedule.number, busy_s - instance.schedule.charged_s)
        instance.schedule.charged_s = busy_s
