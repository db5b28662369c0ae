"""One budget for what operators keep by key: shared among flows and operators."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.operators.base.memory import PROCESS_BYTES, MemoryBudget, state_bytes
from edgert.operators.state.bounded_keys import ByKey

MB = 1_000_000


def shared(limit_bytes: float, count: int, own_bytes: float = math.inf) -> tuple[MemoryBudget, list[MemoryBudget]]:
    whole, parts = MemoryBudget(limit_bytes), [MemoryBudget(own_bytes) for _ in range(count)]
    for part in parts:
        whole.take_in(part)
    return whole, parts


def test_one_part_may_have_what_the_others_leave_and_gives_it_back_to_them() -> None:
    whole, (one, other) = shared(90 * MB, 2)
    other.own_bytes = 20 * MB
    assert one.room_for(70 * MB) == 70 * MB
    assert other.room_for(30 * MB) >= 30 * MB, "it has not got its even share yet"
    assert one.room_for(70 * MB) == 60 * MB
    assert other.room_for(60 * MB) == 45 * MB, "beyond that it has to wait until the other gave up some"
    assert whole.held_bytes == 130 * MB


def test_flows_share_it_whatever_number_of_operators_they_have() -> None:
    _, (many, one) = shared(90 * MB, 2)
    operators = [MemoryBudget() for _ in range(9)]
    for operator in operators:
        many.take_in(operator)
    single = MemoryBudget()
    one.take_in(single)
    assert (operators[0].even_bytes(), single.even_bytes()) == (5 * MB, 45 * MB)
    assert single.room_for(90 * MB) == 90 * MB
    operators[0].own_bytes = 30 * MB
    assert single.room_for(90 * MB) == 60 * MB


def test_a_flow_that_ends_gives_its_part_back() -> None:
    whole, (one, other) = shared(90 * MB, 2)
    other.own_bytes = 80 * MB
    assert one.room_for(50 * MB) == 45 * MB
    whole.let_go(other)
    assert (one.room_for(50 * MB), whole.held_bytes) == (90 * MB, 50 * MB)
    assert other.room_for(80 * MB) == math.inf


def test_no_part_exceeds_its_own_limit_and_without_a_budget_that_is_all() -> None:
    _, (one, _) = shared(90 * MB, 2, own_bytes=64 * MB)
    assert one.room_for(80 * MB) == 64 * MB
    assert MemoryBudget(64 * MB).room_for(80 * MB) == 64 * MB


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 200)), max_size=50))
def test_parts_that_obey_exceed_it_by_nothing_once_all_were_asked(steps: list[tuple[int, int]]) -> None:
    whole, parts = shared(100, 5)
    for number, wants in steps:
        part = parts[number]
        part.own_bytes = int(min(wants, part.room_for(wants)))
    for part in parts:
        part.own_bytes = int(min(part.own_bytes, part.room_for(part.own_bytes)))
    assert whole.held_bytes <= 100


def test_an_operator_forgets_for_another_of_its_flow() -> None:
    keys: ByKey[int] = ByKey("numbers", 24)
    flow, other = MemoryBudget(1 * MB), MemoryBudget()
    flow.take_in(keys.memory)
    flow.take_in(other)
    for number in range(3_000):
        keys.kept[f"device {number}"] = number
    assert not keys.too_many()
    other.own_bytes = 400_000
    while gone := keys.too_many():
        for key in gone:
            keys.forget(key)
    assert 0.9 < keys.held_bytes() / 600_000 <= 1
    assert "device 2999" in keys.kept
    assert "device 0" not in keys.kept


@pytest.mark.parametrize(("limit", "processes", "mb"), [(256 << 20, 1, 96), (512 << 20, 5, 96), (100 << 20, 2, 6)])
def test_state_may_have_half_of_what_the_processes_leave(limit: int, processes: int, mb: int) -> None:
    assert state_bytes(limit, processes) >> 20 == mb
    assert PROCESS_BYTES == 64 << 20
