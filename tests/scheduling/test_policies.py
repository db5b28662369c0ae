"""What all policies keep, whatever is told to them; and what each of them prefers."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edgert.scheduling.congestion_aware import CongestionAware
from edgert.scheduling.in_turn import Random, RoundRobin
from edgert.scheduling.policies import POLICIES, Policy
from edgert.scheduling.profile import ALL_PATHS, PATHS, Profile, hops_to_sink, outputs, paths
from edgert.scheduling.ranked import MinLatency, MinMemory, envelope

INSTANCES = st.integers(0, 9)
MAKE = st.sampled_from([*POLICIES.values(), lambda draw: MinLatency(0.5), lambda draw: CongestionAware(0.0)])


class AnyPolicy(RuleBasedStateMachine):
    """A policy chooses a candidate whenever there is one, and nothing else, through any sequence of changes."""

    @initialize(make=MAKE, seed=st.integers(0, 99))
    def begin(self, make: Callable[[Callable[[], float]], Policy], seed: int) -> None:
        self.policy = make(random.Random(seed).random)
        self.length: dict[int, int] = {}
        self.busy: set[int] = set()
        self.now = 0.0

    def candidates(self) -> set[int]:
        return {i for i, n in self.length.items() if n > 0 and i not in self.busy}

    @rule(instance=INSTANCES)
    def add(self, instance: int) -> None:
        if instance not in self.length:
            self.policy.add(instance)
            self.length[instance] = 0
            self.connect()

    @rule(instance=INSTANCES)
    def remove(self, instance: int) -> None:
        if self.length.pop(instance, None) is not None:
            self.policy.remove(instance)
            self.busy.discard(instance)
            self.connect()

    def connect(self) -> None:
        """A chain in order of number, in which every third feeds two."""
        known = sorted(self.length)
        self.policy.connect({k: known[at + 1 : at + (3 if at % 3 == 0 else 2)] for at, k in enumerate(known)})

    @rule(instance=INSTANCES, cost_s=st.floats(0.0, 1.0), selectivity=st.floats(0.0, 3.0))
    def profile(self, instance: int, cost_s: float, selectivity: float) -> None:
        if instance in self.length:
            self.policy.profile({instance: Profile(cost_s, selectivity)})

    @rule(instance=INSTANCES, rows=st.integers(1, 9))
    def rows_added(self, instance: int, rows: int) -> None:
        if instance in self.length:
            self.policy.rows_added(instance, rows)
            self.length[instance] += rows

    @rule(instance=INSTANCES, rows=st.integers(1, 9))
    def rows_taken(self, instance: int, rows: int) -> None:
        if rows := min(rows, self.length.get(instance, 0)):
            self.policy.rows_taken(instance, rows)
            self.length[instance] -= rows

    @rule(instance=INSTANCES)
    def busy_or_free(self, instance: int) -> None:
        if instance in self.busy:
            self.policy.free(instance)
            self.busy.discard(instance)
        elif instance in self.length:
            self.policy.busy(instance)
            self.busy.add(instance)

    @rule(instance=INSTANCES, weight=st.sampled_from([1.0, 1.0, 0.001, 0.5, 3.0]))
    def weigh(self, instance: int, weight: float) -> None:
        if instance in self.length:
            self.policy.weigh(instance, weight)

    @rule(instance=INSTANCES, took_s=st.floats(0.0, 1.0))
    def ran(self, instance: int, took_s: float) -> None:
        if instance in self.length:
            self.policy.ran(instance, took_s)

    @rule(passed=st.sampled_from([0.0, 0.3, 1.0]))
    def time(self, passed: float) -> None:
        self.now += passed

    @invariant()
    def a_candidate_is_chosen_if_there_is_one(self) -> None:
        if hasattr(self, "policy"):
            chosen = self.policy.choose(self.now)
            assert chosen in self.candidates() if self.candidates() else chosen is None


TestAnyPolicy = AnyPolicy.TestCase


def filled(policy: Policy, rows: dict[int, int]) -> Policy:
    for instance, count in rows.items():
        policy.add(instance)
        if count:
            policy.rows_added(instance, count)
    return policy


def served(policy: Policy, turns: int, feed: bool = True) -> Counter[int]:
    """How often each is chosen when every turn takes one row (and one comes in again)."""
    count: Counter[int] = Counter()
    for _ in range(turns):
        chosen = policy.choose(0.0)
        if chosen is None:
            break
        count[chosen] += 1
        policy.busy(chosen)
        policy.rows_taken(chosen, 1)
        if feed:
            policy.rows_added(chosen, 1)
        policy.free(chosen)
    return count


def test_round_robin_gives_each_its_turn_whatever_the_lengths() -> None:
    assert served(filled(RoundRobin(), {0: 1, 1: 1_000, 2: 7}), 30) == {0: 10, 1: 10, 2: 10}


def test_random_gives_each_about_the_same_and_the_same_again_with_its_seed() -> None:
    rows = {0: 1, 1: 1_000, 2: 7, 3: 9}
    count, again, other = (served(filled(Random(random.Random(seed).random), rows), 4_000) for seed in (3, 3, 4))
    assert all(900 < n < 1_100 for n in count.values()), count
    assert count == again != other


@pytest.mark.parametrize("mine", [{1, 2}, {7}, {0, 3, 5, 9}])
def test_random_gives_each_that_may_run_about_the_same(mine: set[int]) -> None:
    policy = filled(Random(random.Random(5).random), dict.fromkeys(range(40), 1))
    count = Counter(policy.choose(0.0, mine.__contains__) for _ in range(1_000 * len(mine)))
    assert count.keys() == mine
    assert all(880 < n < 1_120 for n in count.values()), count


@given(
    MAKE, st.lists(st.integers(0, 30), min_size=1, max_size=40), st.frozensets(st.integers(0, 39)), st.integers(0, 9)
)
def test_a_choice_of_some_is_the_first_of_them_and_the_others_stay_as_they_are(
    make: Callable[[Callable[[], float]], Policy], lengths: list[int], mine: frozenset[int], seed: int
) -> None:
    policy, other, fresh = (make(random.Random(seed).random) for _ in range(3))
    for each in (policy, other, fresh):
        for number in range(len(lengths)):
            each.add(number)
        each.connect({number: [number + 1] if number + 1 < len(lengths) else [] for number in range(len(lengths))})
        for number, rows in enumerate(lengths):
            if rows:
                each.rows_added(number, rows)
        for number, rows in enumerate(lengths):
            if rows % 3:  # what a heap holds of it is out of date
                each.rows_added(number, 2 * rows)
                each.rows_taken(number, 2 * rows - 1)
                each.rows_taken(number, 1)
    chosen = policy.choose(0.0, mine.__contains__)
    among = [number for number, rows in enumerate(lengths) if rows and number in mine]
    assert (chosen is None) == (not among)
    assert chosen is None or chosen in among
    for number in range(len(lengths)):
        if number not in mine:
            other.busy(number)
    if not isinstance(policy, Random):
        assert other.choose(0.0) == chosen
    orders: list[list[int]] = []
    for each in (policy, fresh):
        orders.append([])
        while (found := each.choose(0.0)) is not None:
            each.busy(found)
            orders[-1].append(found)
    assert sorted(orders[0]) == [number for number, rows in enumerate(lengths) if rows]
    if not isinstance(policy, Random):
        assert orders[0] == orders[1]


def test_who_was_passed_over_keeps_its_age() -> None:
    policy = CongestionAware(0.05)
    for number, rows in ((1, 1), (2, 9)):
        policy.add(number)
        policy.rows_added(number, rows)
    assert policy.choose(0.0, lambda number: number == 2) == 2
    assert policy.choose(0.04, lambda number: number == 2) == 2
    assert policy.choose(0.06) == 1, "it has waited longer than the bound"


def test_min_latency_takes_whoever_is_nearer_to_a_sink_until_nothing_waits_there() -> None:
    policy = filled(MinLatency(), {0: 3, 1: 2, 2: 1})
    policy.connect({0: [1], 1: [2], 2: []})
    order = [next(iter(served(policy, 1, feed=False))) for _ in range(6)]
    assert order == [2, 1, 1, 0, 0, 0]


def test_min_latency_breaks_ties_by_rows_that_leave_per_second() -> None:
    policy = filled(MinLatency(), {0: 1, 1: 1, 2: 1})
    policy.connect({0: [1, 2], 1: [], 2: []})
    policy.profile({1: Profile(2e-3, 1.0), 2: Profile(1e-3, 1.0)})
    assert policy.choose(0.0) == 2
    policy.profile({1: Profile(5e-4, 1.0)})
    assert policy.choose(0.0) == 1


def test_min_memory_takes_whoever_makes_rows_vanish_fastest() -> None:
    """0 → 1 → 2: 1 drops nine of ten rows and is quick, so 0, which feeds it, lies on the same steep segment."""
    policy = filled(MinMemory(), {0: 5, 1: 5, 2: 5})
    policy.connect({0: [1], 1: [2], 2: []})
    policy.profile({0: Profile(1.0, 1.0), 1: Profile(1.0, 0.1), 2: Profile(10.0, 1.0)})
    assert served(policy, 20, feed=False) == {0: 5, 1: 5, 2: 5}
    policy = filled(MinMemory(), {0: 5, 2: 5})
    policy.add(1)
    policy.connect({0: [1], 1: [2], 2: []})
    policy.profile({0: Profile(1.0, 1.0), 1: Profile(1.0, 0.1), 2: Profile(10.0, 1.0)})
    assert [next(iter(served(policy, 1, feed=False))) for _ in range(10)] == [0] * 5 + [2] * 5


def test_an_operator_before_a_steeper_one_shares_its_segment_and_one_behind_has_its_own() -> None:
    """Nine rows of ten stay after the first, and the second is done with them in 0.9: together 1 row in 1.9. Where the
    first alone loses 0.9 in 1, the second, which takes 2 for the tenth that is left, is a segment of its own."""
    assert envelope([Profile(1.0, 0.9), Profile(1.0, 0.0)]) == pytest.approx([1 / 1.9, 1 / 1.9])
    assert envelope([Profile(1.0, 0.1), Profile(20.0, 1.0)]) == pytest.approx([0.9, 0.05])


def test_an_operator_that_costs_nothing_behind_one_that_costs_hours_has_a_slope() -> None:
    assert envelope([Profile(1e6, 1e3), Profile(0.0, 0.0)]) == pytest.approx([1e-6, 1e-6])


def steepest_first(path: list[Profile]) -> list[float]:
    """The envelope as the paper has it: from each corner the steepest line to any later point."""
    spent, left = [0.0], [1.0]
    for cost_s, selectivity, _ in path:
        spent.append(spent[-1] + max(cost_s * left[-1], 1e-12 * (1.0 + spent[-1])))
        left.append(left[-1] * selectivity)
    left[-1] = 0.0
    slopes: list[float] = []
    while (at := len(slopes)) < len(path):
        slope, end = max(((left[at] - left[j]) / (spent[j] - spent[at]), j) for j in range(at + 1, len(left)))
        slopes += [slope] * (end - at)
    return slopes


@given(st.lists(st.tuples(st.floats(1e-6, 1.0), st.floats(0.0, 2.0)), min_size=1, max_size=8))
def test_slopes_of_an_envelope_never_grow_along_the_path(path: list[tuple[float, float]]) -> None:
    slopes = envelope([Profile(*p) for p in path])
    assert slopes == pytest.approx(steepest_first([Profile(*p) for p in path]), rel=1e-6, abs=1e-6)
    assert all(a >= b or math.isclose(a, b, rel_tol=1e-6) for a, b in pairwise(slopes))


def test_what_becomes_of_a_row_until_it_leaves() -> None:
    """0 feeds 1 and 2, both feed 3. S and C as algorithms of highest rate have them."""
    graph = {0: [1, 2], 1: [3], 2: [3], 3: []}
    profiles = {0: Profile(1.0, 0.5), 1: Profile(2.0, 1.0), 2: Profile(4.0, 0.25), 3: Profile(1.0, 1.0)}
    found = outputs(graph, profiles)
    assert found[3] == (1.0, 1.0)
    assert found[1] == (1.0, 3.0)
    assert found[2] == (0.25, 4.25)
    assert found[0] == (0.5 * 1.25, 1.0 + 0.5 * 7.25)
    assert found[1].rate == pytest.approx(1 / 3)
    assert hops_to_sink(graph) == {0: 2, 1: 1, 2: 1, 3: 0}
    assert sorted(paths(graph)) == [(0, 1, 3), (0, 2, 3)]


def test_paths_of_a_flow_with_many_diamonds_are_not_all_followed() -> None:
    graph: dict[int, list[int]] = {}
    for level in range(40):
        graph[3 * level] = [3 * level + 1, 3 * level + 2]
        graph[3 * level + 1] = graph[3 * level + 2] = [3 * level + 3]
    graph[120] = []
    found = list(paths(graph))
    assert len(found) == PATHS + 1
    assert {k for path in found for k in path} == graph.keys(), "so that each has a rank"
    for path in found:
        assert (path[0], path[-1]) == (0, 120)
        assert all(j in graph[k] for k, j in pairwise(path))
    assert len(outputs(graph, {})) == 121


def test_a_flow_of_many_copies_has_no_more_paths_than_copies_and_some_hundreds() -> None:
    """Six layers of 64, each copy feeding all of the next."""
    layer = [*range(64)]
    graph = {64 * level + k: [64 * level + 64 + j for j in layer if level < 5] for level in range(6) for k in layer}
    found = list(paths(graph))
    assert len(found) <= ALL_PATHS + len(graph)
    assert {k for path in found for k in path} == graph.keys()
    assert Counter(path[0] for path in found[:ALL_PATHS]) == dict.fromkeys(layer, 8)


def test_sources_with_few_paths_leave_theirs_to_others() -> None:
    """A hundred flows of one path each, and one of 36."""
    graph: dict[int, list[int]] = {k: [k + 1] if k % 2 == 0 else [] for k in range(200)}
    graph |= {200: [*range(201, 207)], 213: []}
    graph |= {k: [*range(207, 213)] for k in range(201, 207)} | {k: [213] for k in range(207, 213)}
    assert len(list(paths(graph))) == 100 + 36


@given(st.lists(st.sets(st.integers(1, 9), max_size=4), min_size=1, max_size=30))
def test_every_instance_is_on_a_path_from_a_source_to_a_sink(forward: list[set[int]]) -> None:
    size = len(forward)
    graph = {k: sorted(k + step for step in steps if k + step < size) for k, steps in enumerate(forward)}
    fed = {j for targets in graph.values() for j in targets}
    found = list(paths(graph))
    assert len(found) == len(set(found))
    assert {k for path in found for k in path} == graph.keys()
    for path in found:
        assert path[0] not in fed
        assert not graph[path[-1]]
        assert all(j in graph[k] for k, j in pairwise(path))


@pytest.mark.parametrize(
    ("name", "least", "most"), [("congestion-aware-published", 1.0, 1.0), ("congestion-aware", 0.0, 0.2)]
)
def test_where_the_turns_of_all_take_long_only_the_published_policy_looks_at_the_queues(
    name: str, least: float, most: float
) -> None:
    """Eight that always have rows, with turns of 8 ms; the first has by far the most."""
    policy = filled(POLICIES[name](random.Random(1).random), {0: 100_000} | dict.fromkeys(range(1, 8), 200))
    first = 0
    for turn in range(400):
        chosen = policy.choose(turn * 0.008)
        assert chosen is not None
        first += chosen == 0
        policy.busy(chosen)
        policy.rows_taken(chosen, 200)
        policy.rows_added(chosen, 200)
        policy.free(chosen)
    assert least <= first / 400 <= most


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_the_bookkeeping_stays_small_however_long_it_runs(name: str) -> None:
    policy = filled(POLICIES[name](random.Random(1).random), dict.fromkeys(range(3), 1))
    policy.connect({0: [1], 1: [2], 2: []})
    for _ in range(2_000):
        served(policy, 1)
    heap = getattr(policy, "_heap", [])
    assert len(heap) <= 8 * 3 + 65
