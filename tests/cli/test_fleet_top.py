"""`edgert fleet top`: rates from two readings of the boards' figures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgert.cli.fleet.top import lines
from edgert.cli.main import main


def figures(at: float, rows: int, busy_s: float, plan: int = 1) -> dict[str, Any]:
    one = {
        "slot": -1, "at": at, "rows_in": rows, "busy_s": busy_s, "queue_rows": 2, "head_age_s": 0.5,
    }  # fmt: skip
    flow = {"version": 1, "plan": plan, "latency_s": None, "instances": {"window": one}}
    return {"monotonic": at, "cpu_count": 4, "flows": {"city": flow}}


def cells(told: list[str], first: str) -> list[str]:
    (line,) = [line for line in told if line.startswith(first)]
    return line.split()


def test_rates_are_those_between_the_readings() -> None:
    told = lines({"g2": figures(10.0, 100, 1.0)}, {"g2": figures(12.0, 300, 1.5)})
    assert cells(told, "g2") == ["g2", "4", "25.0", "%", "1", "1"]
    assert cells(told, "window")[:2] == ["window", "g2"]
    assert "100" in cells(told, "window")


def test_a_board_that_came_and_a_plan_that_changed_have_no_rates_yet() -> None:
    told = lines({"g2": figures(10.0, 100, 1.0)}, {"g2": figures(12.0, 0, 0.0, plan=2), "g3": figures(3.0, 5, 0.1)})
    assert cells(told, "g3")[2] == "-"
    assert cells(told, "g2")[2:4] == ["0.0", "%"]
    windows = [line.split() for line in told if line.startswith("window")]
    assert [row[1] for row in windows] == ["g2", "g3"]
    assert all("-" in row for row in windows)


def test_an_idle_fleet() -> None:
    told = lines({}, {"g1": {"monotonic": 1.0, "cpu_count": 1, "flows": {}}})
    assert told[-1] == "no flow runs in this fleet"


def test_json_is_the_last_reading(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It printed the table."""
    readings = iter([{"boards": {}}, {"boards": {"g2": figures(12.0, 300, 1.5)}}])
    monkeypatch.setattr("edgert.cli.fleet.top.ask_fleet", lambda *_: next(readings))
    assert main(["fleet", "top", "--once", "--json", "--every", "0.1"]) == 0
    assert json.loads(capsys.readouterr().out) == {"g2": figures(12.0, 300, 1.5)}
