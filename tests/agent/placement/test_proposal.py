"""A better placement of one flow among all that runs."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

import pytest

from agent.placement.problem.budget import Budget
from agent.placement.problem.model import PlacementError
from agent.placement.proposal import Proposal, propose

PROFILES = [{"gateway": name, "cpu": 1.0, "speed": 1.0, "memory": 2**30} for name in ("a", "b", "c")]
ON = {"read": "a", "valid": "b", "minute#1": "b", "minute#2": "c", "ship": "c"}


def figures(gateway: str, at: float, cpu: dict[str, float], other: float = 0.0) -> dict[str, Any]:
    """All counters grow from 0 at time 0. `cpu`: of this gateway's instances; `other`: of a flow of its own."""
    told = {name: {"busy_s": part * at, "operators": _inside(name)} for name, part in cpu.items()}
    links = [
        ("read", "valid"),
        ("valid", "minute#1"),
        ("valid", "minute#2"),
        ("minute#1", "ship"),
        ("minute#2", "ship"),
    ]
    edges = [{"from": a, "to": b, "rows": int(10 * at), "bytes": int(100 * at)} for a, b in links if a in cpu]
    flows = {"f": {"version": 1, "plan": 1, "instances": told, "edges": edges}}
    own = {"version": 1, "plan": 1, "instances": {"x": {"busy_s": other * at, "operators": ["x"]}}, "edges": []}
    return {"gateway": gateway, "monotonic": at, "flows": {**flows, "own": own}}


def _inside(name: str) -> list[str]:
    return name.partition("#")[0].split("+")


def proposal(
    other: float, keep: Collection[str] = ("read",), heuristic: str = "hybrid", cpu: float = 0.1, drained: str = ""
) -> Proposal:
    """`other`: use of board `a` by a flow of its own."""
    parts = {"a": ["read"], "b": ["valid", "minute#1"], "c": ["minute#2", "ship"]}
    readings = {
        gateway: (
            figures(gateway, 10.0, dict.fromkeys(names, cpu), other if gateway == "a" else 0.0),
            figures(gateway, 20.0, dict.fromkeys(names, cpu), other if gateway == "a" else 0.0),
        )
        for gateway, names in parts.items()
    }
    draw = random.Random(7).random
    profiles = [{**profile, "drained": profile["gateway"] == drained} for profile in PROFILES]
    return propose(
        "f", heuristic, readings, ON, {"f"}, keep, profiles, lambda a, b: 0.01, Budget(evaluations=3000), draw
    )


def test_operators_come_together_on_the_board_of_their_source_where_they_fit() -> None:
    found = proposal(other=0.0)
    assert found.better
    assert found.after == dict.fromkeys(ON, "a")
    assert set(found.moves) == ON.keys() - {"read"}
    assert (found.now.terms.edges, found.then.terms.edges) == (3 / 5, 0.0)
    assert found.now.terms.latency_ms == pytest.approx(10.0)


def test_a_board_that_its_own_flow_fills_gets_no_more() -> None:
    found = proposal(other=0.8)
    assert found.better
    assert found.after["read"] == "a"
    assert "a" not in {at for operator, at in found.after.items() if operator != "read"}
    assert found.then.rank.violation == 0


def test_operators_that_are_kept_stay_with_all_their_copies() -> None:
    found = proposal(other=0.0, keep=("read", "minute", "ship"))
    assert {found.after["minute#1"], found.after["minute#2"], found.after["ship"]} == {"b", "c"}
    assert found.moves.keys() <= {"valid"}


def test_a_drained_board_gets_nothing_loses_what_may_move_and_keeps_what_stays() -> None:
    found = proposal(other=0.0, keep=("read", "ship"), drained="c")
    assert (found.after["read"], found.after["ship"]) == ("a", "c")
    assert "c" not in {found.after[name] for name in ("valid", "minute#1", "minute#2")}
    assert found.better
    assert found.now.rank.violation > 0


def test_what_is_not_better_is_said_to_be_not() -> None:
    found = proposal(other=0.0, keep=tuple(ON))
    assert not found.better
    assert not found.moves


def test_a_heuristic_that_nobody_knows() -> None:
    with pytest.raises(PlacementError, match="heuristic: expected one of hybrid"):
        proposal(other=0.0, heuristic="best")
