"""Transformation and translators: schedules in, golden lists of actions out."""

from __future__ import annotations

from agent.drivers.entities import Operator, Thread
from agent.osched.kernel.actions import SetGroup, SetNice, SetSlice, SetWeights
from agent.osched.kernel.group_files import v1_files, v2_files
from agent.osched.transformation import groups_by_query, logical_to_physical, physical_to_threads, units_of
from agent.osched.translate import to_groups, to_nice, to_slices, to_weights

A, B, C = Thread(10, 11, 5), Thread(10, 12, 5), Thread(20, 20, 6)


def test_a_fused_operator_gets_the_greatest_priority_and_every_copy_the_same() -> None:
    """Algorithm 2."""
    operators = [
        Operator("parse+filter", "q", logical=("parse", "filter")),
        Operator("count#0", "q", logical=("count",)),
        Operator("count#1", "q", logical=("count",)),
        Operator("unknown", "q"),
    ]
    physical = logical_to_physical({"parse": 3.0, "filter": 7.0, "count": 5.0}, operators)
    assert physical == {"parse+filter": 7.0, "count#0": 5.0, "count#1": 5.0}


def test_all_threads_of_a_slot_get_the_greatest_priority_in_it() -> None:
    operators = [
        Operator("a", "q", threads=(A, B)),
        Operator("b", "q", threads=(A, B)),
        Operator("c", "q", threads=(C,)),
        Operator("d", "q"),
    ]
    assert physical_to_threads({"a": -2.0, "b": -1.0, "c": 5.0, "d": 9.0}, operators) == {A: -1.0, B: -1.0, C: 5.0}
    assert physical_to_threads({"a": 7.0, "b": 1.0, "c": 5.0}, operators) == {A: 7.0, B: 7.0, C: 5.0}


def test_threads_that_run_the_same_operators_are_one_unit_of_their_greatest_priority() -> None:
    operators = [
        Operator("a", "q", threads=(A, B)),
        Operator("b", "q", threads=(A, B)),
        Operator("c", "q", threads=(C,)),
    ]
    assert units_of(operators, {A: 2.0, B: 3.0, C: 5.0}) == {(A, B): 3.0, (C,): 5.0}
    assert units_of(operators, {C: 5.0}) == {(C,): 5.0}


def test_priorities_of_other_boards_count_for_the_range_and_get_no_action() -> None:
    assert to_nice({A: 10.0}, 0, 19, over=(10.0, 100.0)) == [SetNice(A, 10)]
    assert to_slices({A: 2.0}, shortest_ms=1.0, longest_ms=4.0, over=(1.0, 3.0)) == [SetSlice(A, 2_000_000)]


def test_nice_of_ten_to_one() -> None:
    assert to_nice({A: 100.0, C: 10.0}, 0, 19) == [SetNice(A, 0), SetNice(C, 10)]


def test_the_example_of_the_docs() -> None:
    assert to_nice({A: 400.0, B: 40.0, C: 8.0}, 0, 19) == [SetNice(A, 0), SetNice(B, 10), SetNice(C, 18)]
    assert to_nice({A: 400.0, B: 40.0, C: 0.0}, 0, 19) == [SetNice(A, 0), SetNice(B, 7), SetNice(C, 19)]


def test_the_most_urgent_gets_the_shortest_slice() -> None:
    assert to_slices({A: 1.0, B: 2.0, C: 3.0}, shortest_ms=1.0, longest_ms=4.0) == [
        SetSlice(A, 4_000_000),
        SetSlice(B, 2_000_000),
        SetSlice(C, 1_000_000),
    ]


def test_a_group_per_query_and_one_for_threads_of_several() -> None:
    operators = [
        Operator("a", "q1", threads=(A,)),
        Operator("b", "q1", threads=(B,)),
        Operator("c", "q2", threads=(B,)),
        Operator("d", "q2", threads=(C,)),
    ]
    assert groups_by_query(operators, "edgert") == {"q1": (1, [A]), "edgert": (2, [B]), "q2": (1, [C])}


def test_shares_in_proportion_around_the_kernels_default() -> None:
    assert to_groups({"q1": (3.0, (A,)), "q2": (1.0, (C,))}, {"q2": 0.5}) == [
        SetGroup("q1", 1.5, (A,)),
        SetGroup("q2", 0.5, (C,), 0.5),
    ]
    assert to_groups({"q1": (0.0, (A,))}) == [SetGroup("q1", 1.0, (A,))]


def test_files_of_both_versions_of_cgroups() -> None:
    assert v1_files(1.5, None) == {"cpu.shares": "1536", "cpu.cfs_quota_us": "-1"}
    assert v1_files(0.0, 0.5) == {"cpu.shares": "2", "cpu.cfs_quota_us": "50000"}
    assert v2_files(1.5, None) == {"cpu.weight": "150", "cpu.max": "max 100000"}
    assert v2_files(1e9, 2.0) == {"cpu.weight": "10000", "cpu.max": "200000 100000"}


def test_pool_weights_per_flow() -> None:
    given = {("etl", "parse"): 0.0, ("etl", "join"): 10.0, ("stats", "mean"): 5.0}
    assert to_weights(given, most=16.0) == [
        SetWeights("etl", {"parse": 1.0, "join": 16.0}),
        SetWeights("stats", {"mean": 8.5}),
    ]
    assert to_weights({("etl", "parse"): 4.0}) == [SetWeights("etl", {"parse": 1.0})]
