"""Whose messages come next at the collector."""

from __future__ import annotations

from edgert.central.collector.inbox import ResultMessage
from edgert.central.collector.turns import FIRST_QUOTA, LEAST_QUOTA, Turns
from edgert.central.landing.hourly_budget import HourlyBudget


def of(gateway: str, payload: bytes = b"") -> ResultMessage:
    return ResultMessage(f"edgert/v1/f/@results/3/{gateway}/air", payload)


def test_the_gateway_that_cost_least_comes_first() -> None:
    turns = Turns()
    for name in ("a", "b", "c"):
        turns.add(of(name))
    turns.charge({"a": 2.0, "b": 1.0})
    assert turns.order() == ["c", "b", "a"]


def test_a_gateway_that_was_silent_has_no_credit_for_it() -> None:
    turns = Turns()
    turns.add(of("busy"))
    for _ in range(10):
        turns.charge({"busy": 1.0})
    turns.add(of("silent"))
    assert turns.spent("busy") - turns.spent("silent") == 1.0


def test_invented_names_and_gateways_with_results_take_turns_alternately() -> None:
    turns = Turns()
    turns.landed({"cheap": 1.0, "dear": 2.0})
    for name in ("n1", "n2", "n3", "dear", "cheap"):
        turns.add(of(name))
    assert turns.order() == ["cheap", "n1", "dear", "n2", "n3"]


def test_what_gateways_with_results_cost_puts_no_new_one_behind_the_others() -> None:
    turns = Turns()
    turns.add(of("hostile"))
    turns.charge({"hostile": 3.0})
    for _ in range(10):
        turns.landed({"busy": 10.0})
    turns.add(of("new"))
    assert turns.order() == ["new", "hostile"]


def test_messages_of_a_gateway_keep_their_order_also_when_put_back() -> None:
    turns = Turns()
    turns.add(of("a", b"1"))
    turns.add(of("a", b"2"))
    first = turns.take("a")
    assert first is not None
    turns.put_back(first)
    assert [turns.take("a"), turns.take("a"), turns.take("a")] == [of("a", b"1"), of("a", b"2"), None]
    assert not turns


def test_where_too_much_waits_the_longest_queue_loses_its_newest() -> None:
    turns = Turns(most_bytes=6 * of("hostile", b"x").size)
    turns.add(of("honest", b"x"))
    for n in range(100):
        turns.add(of("hostile", bytes([n])))
    assert turns.take("honest") == of("honest", b"x")
    assert turns.take("hostile") == of("hostile", bytes([0]))
    assert turns.dropped == 100 - 5


def test_a_turn_becomes_shorter_where_landing_takes_long_and_longer_where_it_does_not() -> None:
    turns = Turns()
    turns.landed({"slow": 5.0, "quick": 0.01, "fair": 0.3})
    assert turns.quota("slow") == FIRST_QUOTA // 2
    assert turns.quota("quick") == FIRST_QUOTA * 2
    assert turns.quota("fair") == FIRST_QUOTA
    for _ in range(20):
        turns.landed({"slow": 5.0})
    assert turns.quota("slow") == LEAST_QUOTA


def test_an_hours_budget_is_spent_at_once_and_comes_back_evenly() -> None:
    budget = HourlyBudget(60)
    assert [budget.admits("g1", 0.0) for _ in range(61)] == [True] * 60 + [False]
    assert budget.admits("g2", 0.0)
    assert not budget.admits("g1", 59.0)
    assert budget.admits("g1", 61.0)
    assert not budget.admits("g1", 61.0)
