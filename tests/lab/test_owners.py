"""The witness of owners notes two of them, and nothing that a change of plan does."""

from __future__ import annotations

from typing import Any

import pytest

from edgert.control.messages import ControlError
from tests.lab.owners import Owners, Witness
from tests.waiting import wait_until


def part(plan: int, state: str = "running", **on: str) -> dict[str, Any]:
    assignment = {operator: [board, -1] for operator, board in on.items()}
    return {"air": {"plan": plan, "state": state, "assignment": assignment}}


@pytest.fixture
def owners() -> Owners:
    return Owners("air")


def test_a_move_is_no_second_owner(owners: Owners) -> None:
    owners.answered("a", part(1, window="a"), 0.0, 0.1)
    owners.answered("b", part(1, window="a"), 0.1, 0.2)
    owners.answered("a", part(1, "prepared", window="a"), 0.5, 0.6)
    owners.answered("b", part(2, window="b"), 0.6, 0.7)
    owners.answered("a", part(3, window="a"), 1.0, 1.1)
    assert owners.violations == []


def test_an_old_owner_that_goes_on_is_noted(owners: Owners) -> None:
    owners.answered("b", part(2, window="b"), 0.0, 0.1)
    owners.answered("a", part(1, window="a"), 0.2, 0.3)
    assert owners.violations == ["window runs on a by plan 1, and on b by plan 2"]


def test_an_answer_that_was_on_its_way_proves_nothing(owners: Owners) -> None:
    owners.answered("b", part(2, window="b"), 0.0, 0.5)
    owners.answered("a", part(1, window="a"), 0.4, 0.6)
    assert owners.violations == []


def test_two_deployments_of_one_plan_are_noted(owners: Owners) -> None:
    owners.answered("a", part(1, window="a"), 0.0, 0.1)
    owners.answered("b", part(1, window="b"), 0.2, 0.3)
    assert len(owners.violations) == 1
    owners.removed()
    owners.answered("c", part(1, window="c"), 0.4, 0.5)
    assert len(owners.violations) == 1


def test_the_witness_passes_over_boards_that_are_down(owners: Owners) -> None:
    def down() -> dict[str, Any]:
        raise ControlError("down")

    with Witness(owners, {"a": down, "b": lambda: part(2, window="b"), "c": lambda: part(1, window="c")}):
        wait_until(lambda: owners.violations, "two owners")
    assert owners.looks >= 2
