"""The congestion-aware policy against a brute-force model."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edgert.scheduling.congestion_aware import CongestionAware

INSTANCES = st.integers(0, 5)


class CongestionAwareModel(RuleBasedStateMachine):
    """Lengths and free instances by hand; the longest free queue must win, or the one that waited too long."""

    @initialize(starvation_s=st.sampled_from([0.0, 3.0, float("inf")]))
    def begin(self, starvation_s: float) -> None:
        self.policy = CongestionAware(starvation_s)
        self.starvation_s = starvation_s
        self.length: dict[int, int] = {}
        self.busy: set[int] = set()
        self.order: list[int] = []
        self.found: dict[int, float] = {}
        """When a choice first found each candidate."""
        self.now = 0.0

    def candidates(self) -> list[int]:
        return [i for i, n in self.length.items() if n > 0 and i not in self.busy]

    def settle(self) -> None:
        """The order in which candidates became so."""
        now = self.candidates()
        self.order = [i for i in self.order if i in now] + [i for i in now if i not in self.order]
        self.found = {i: at for i, at in self.found.items() if i in now}

    def expected(self) -> int | None:
        """To be called when the policy is asked."""
        for i in self.order:
            self.found.setdefault(i, self.now)
        if not self.order:
            return None
        if self.now - self.found[self.order[0]] >= self.starvation_s:
            return self.order[0]
        return max(self.order, key=lambda i: self.length[i])  # of several the first

    @rule(instance=INSTANCES)
    def add(self, instance: int) -> None:
        if instance not in self.length:
            self.policy.add(instance)
            self.length[instance] = 0

    @rule(instance=INSTANCES)
    def remove(self, instance: int) -> None:
        if self.length.pop(instance, None) is not None:
            self.policy.remove(instance)
            self.busy.discard(instance)
            self.settle()

    @rule(instance=INSTANCES, rows=st.integers(1, 9))
    def rows_added(self, instance: int, rows: int) -> None:
        if instance in self.length:
            self.policy.rows_added(instance, rows)
            self.length[instance] += rows
            self.settle()

    @rule(instance=INSTANCES, rows=st.integers(1, 9))
    def rows_taken(self, instance: int, rows: int) -> None:
        rows = min(rows, self.length.get(instance, 0))
        if rows:
            self.policy.rows_taken(instance, rows)
            self.length[instance] -= rows
            self.settle()

    @rule(instance=INSTANCES)
    def busy_or_free(self, instance: int) -> None:
        if instance not in self.length:
            return
        if instance in self.busy:
            self.policy.free(instance)
            self.busy.discard(instance)
        else:
            self.policy.busy(instance)
            self.busy.add(instance)
        self.settle()

    @precondition(lambda self: hasattr(self, "policy"))
    @rule(passed=st.sampled_from([0.0, 1.0, 4.0]))
    def choose(self, passed: float) -> None:
        self.now += passed
        assert self.policy.choose(self.now) == self.expected()

    @invariant()
    def nothing_busy_is_chosen(self) -> None:
        if hasattr(self, "policy"):
            chosen = self.policy.choose(self.now)
            assert chosen == self.expected()
            assert chosen is None or chosen not in self.busy


TestCongestionAware = CongestionAwareModel.TestCase


def test_the_longest_queue_goes_first_and_ties_go_to_who_waited_longest() -> None:
    policy = CongestionAware()
    for instance, rows in ((0, 5), (1, 9), (2, 9)):
        policy.add(instance)
        policy.rows_added(instance, rows)
    assert policy.choose(0.0) == 1


def test_a_short_queue_waits_no_longer_than_the_bound_behind_one_that_is_always_long() -> None:
    policy = CongestionAware(starvation_s=0.05)
    for instance in (0, 1):
        policy.add(instance)
    policy.rows_added(1, 1)
    policy.rows_added(0, 1_000)
    for turn in range(100):
        now = turn * 0.01
        chosen = policy.choose(now)
        if chosen == 1:
            assert now <= 0.05 + 0.01
            return
        policy.busy(0)
        policy.rows_taken(0, 50)
        policy.rows_added(0, 50)
        policy.free(0)
    raise AssertionError("never chosen")


def test_many_short_queues_wait_no_longer_than_the_bound_and_each_other() -> None:
    """Whichever place they have among those that wait: nobody's time begins only when another's is over."""
    policy = CongestionAware(starvation_s=0.05)
    for instance in range(21):
        policy.add(instance)
        policy.rows_added(instance, 1 if instance else 1_000)
    now, turn_s = 0.0, 0.001
    served: dict[int, float] = {}
    while len(served) < 20:
        chosen = policy.choose(now)
        assert chosen is not None
        policy.busy(chosen)
        policy.rows_taken(chosen, 1)
        if chosen == 0:
            policy.rows_added(0, 1)
        else:
            served[chosen] = now
        policy.free(chosen)
        now += turn_s
    assert max(served.values()) <= 0.05 + 20 * turn_s


def test_every_one_of_many_short_queues_is_served() -> None:
    policy = CongestionAware(starvation_s=0.05)
    for instance in range(20):
        policy.add(instance)
        policy.rows_added(instance, 1_000_000 if instance == 0 else 1)
    served = set()
    for turn in range(2_000):
        chosen = policy.choose(turn * 0.01)
        assert chosen is not None
        policy.busy(chosen)
        policy.rows_taken(chosen, 1)
        served.add(chosen)
        policy.rows_added(chosen, 1)
        policy.free(chosen)
    assert served == set(range(20))
