"""What a seed does to a laboratory."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from agent.simulation.described.description import CENTRAL
from tests.lab.faults import BOARDS, differences, plan, readings, timeline

seeds = st.integers(0, 2**32)


@given(seeds, st.integers(3, 8))
def test_a_plan_has_every_kind_of_fault_and_ends_in_time(seed: int, number: int) -> None:
    faults = plan(random.Random(seed), 12.0, number)
    assert {fault.kind for fault in faults} == {"cut", "one-way", "kill"}
    assert len(faults) <= number
    assert all(fault.at_s >= 0 and fault.at_s + fault.lasts_s <= 12.0 for fault in faults)
    assert all(set(fault.places) <= {*BOARDS, CENTRAL} for fault in faults)
    assert plan(random.Random(seed), 12.0, number) == faults


@given(seeds)
def test_a_place_has_one_fault_of_a_kind_at_a_time(seed: int) -> None:
    under_way: list[tuple[bool, frozenset[str]]] = []
    for _, begins, fault in timeline(plan(random.Random(seed), 12.0, 8)):
        where = (fault.kind == "kill", frozenset(fault.places))
        if begins:
            assert where not in under_way
            under_way.append(where)
        else:
            under_way.remove(where)
    assert not under_way


def test_lost_and_doubled_do_not_make_up_for_each_other() -> None:
    assert differences({"a": 5, "b": 5, "c": 1}, {"a": 3, "b": 6, "d": 2}) == (3, 3)
    assert differences({"a": 5}, {"a": 5}) == (0, 0)


def test_no_two_readings_are_equal() -> None:
    some = readings(random.Random(1), 500)
    assert len({str(pack) for pack in some}) == 500
