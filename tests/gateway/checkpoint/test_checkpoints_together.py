"""Checkpoints of many flows: those that are due at nearly the same time are made together."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from gateway.checkpoint.checkpointer import Checkpointer


@dataclass(eq=False)
class Run:
    name: str
    flow: SimpleNamespace


def together(due: dict[str, float], now: float, interval_s: float = 5.0) -> list[str]:

    flow = SimpleNamespace(checkpoint_interval_s=interval_s)
    made = {name: Run(name, flow) for name in due}
    checkpointer: Any = SimpleNamespace(runs=made, _due={made[name]: at for name, at in due.items()})
    return [run.name for run in Checkpointer._together(checkpointer, now)]  # type: ignore[attr-defined]


def test_flows_that_are_due_soon_go_with_the_one_that_is_due() -> None:
    assert together({"a": 10.0, "b": 10.4, "c": 10.6}, now=10.0) == ["a", "b"]


def test_none_goes_before_one_is_due() -> None:
    assert together({"a": 10.1, "b": 10.2}, now=10.0) == []
    assert together({}, now=10.0) == []


def test_300_flows_that_began_one_after_the_other_make_ten_checkpoints_in_an_interval() -> None:
    due = {f"flow{number}": number / 60 for number in range(300)}
    rounds, now = 0, 0.0
    while now < 5.0:
        now = min(due.values())
        for name in together(due, now):
            due[name] = now + 5.0
        rounds += 1
    assert rounds <= 11
