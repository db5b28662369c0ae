"""Between a pool and its policy: what keeps an instance from running, though it has rows and is free.

held     a checkpoint or a pause wants it to stand still
rests    its first row failed, and is to be tried again later
stalled  a queue behind it is over its budget: what it would take waits in its own queue, and so on up to the source,
         whose queue sheds

The policy never hears of these: to it such an instance is busy.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgert.runtime.instance import Instance
from edgert.scheduling.candidates import May
from edgert.scheduling.policies import Policy


class Gate:
    """Instances by number, `instances` as its pool keeps them. Not locked: the pool does that."""

    def __init__(self, policy: Policy, instances: Mapping[int, Instance]) -> None:
        self.policy = policy
        self._instances = instances
        self.held: set[int] = set()
        self.resting: dict[int, float] = {}
        """Until when, monotonic seconds."""
        self.over: set[int] = set()
        """Whose queue is over its budget."""
        self._stalled: dict[int, set[int]] = {}
        """By instance whose queue is over its budget: those that feed it and wait until it is not."""

    def hold(self, number: int) -> None:
        """From now on it stands still; a turn under way goes on."""
        self.held.add(number)
        self.policy.busy(number)

    def let_go(self, number: int, now: float) -> None:
        """It was held, if it was, and is no longer."""
        if number in self.held:
            self.held.discard(number)
            self.free(number, now)

    def free(self, number: int, now: float) -> None:
        """Something that kept it from running is over."""
        instance = self._instances[number]
        if instance.running:  # the end of its turn sees to it
            return
        instance.ready = now
        if number not in self.held and number not in self.resting:
            self.policy.free(number)

    def choose(self, now: float, may: May | None = None) -> int | None:
        """What the policy says, of those whom nothing keeps from running."""
        if self.resting:
            for rested in [n for n, until in self.resting.items() if until <= now]:
                del self.resting[rested]
                self.free(rested, now)
        while True:
            number = self.policy.choose(now, may)
            if number is None or not self.stalls(self._instances[number]):
                return number
            self.policy.busy(number)

    def idle(self) -> bool:
        """Whether nobody could be chosen, and nothing but rows would change that."""
        return not (self.policy.waiting or self.resting or self.over)

    def stalls(self, instance: Instance) -> bool:
        """Whether it must wait for one that it feeds. That one has rows, so its turn comes when nothing else keeps it
        from running; and a graph has no cycle: somebody can always run, or is held, rests or runs already."""
        if self.over:
            for fed in instance.reaches():
                if fed.number in self.over:
                    self._stalled.setdefault(fed.number, set()).add(instance.number)
                    return True
        return False

    def relieved(self, number: int, now: float) -> int:
        """Its queue is within its budget: whoever waited for that may run. Returns how many."""
        self.over.discard(number)
        feeders = self._stalled.pop(number, ())
        for feeder in feeders:
            self.free(feeder, now)
        return len(feeders)

    def forget(self, number: int) -> None:
        """It is gone: it waits for nobody, and the caller says whom that relieves."""
        self.held.discard(number)
        self.resting.pop(number, None)
        for feeders in self._stalled.values():
            feeders.discard(number)
        self.policy.remove(number)
