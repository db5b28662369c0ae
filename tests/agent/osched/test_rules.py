"""Rules: which policy runs, under which condition, how often."""

from __future__ import annotations

import pytest

from agent.osched.rules import Choice, RuleError, common_period_s, parse


def test_a_policy_and_its_period() -> None:
    assert parse("qs").choose({}) == Choice("qs")
    assert parse(" slack every 100 ms ").choose({}) == Choice("slack", 0.1)
    assert parse("hr every 2 s").choose({}) == Choice("hr", 2.0)


def test_a_condition_chooses_between_two() -> None:
    rule = parse("when cpu > 80 %: qs every 100 ms else: none")
    assert rule.choose({"cpu": 0.81}) == Choice("qs", 0.1)
    assert rule.choose({"cpu": 0.8}) == Choice("none")
    assert rule.choose({}) == Choice("none")
    assert parse("when pressure < 5%: none else: fcfs").choose({"pressure": 0.2}) == Choice("fcfs")
    assert rule.periods(1.0) == [0.1, 1.0]


@pytest.mark.parametrize(
    "text",
    ["", "best", "qs every 10 ms", "qs every 2 h", "when cpu > 80: qs else: none", "when cpu > 80 %: qs", "qs qs"],
)
def test_what_is_no_rule_says_what_was_expected(text: str) -> None:
    with pytest.raises(RuleError, match="expected a"):
        parse(text)


def test_the_loop_wakes_at_the_greatest_common_divisor_of_the_periods() -> None:
    assert common_period_s([1.0, 0.25]) == 0.25
    assert common_period_s([0.3, 0.2]) == 0.1
    assert common_period_s([0.07, 0.05]) == 0.05
