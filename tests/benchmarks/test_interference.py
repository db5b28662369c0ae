"""The benchmark of interference in short, and what its simulations promise."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from agent.interference.peaks import Load
from benchmarks import machine
from benchmarks.interference import BENCHMARK, scenarios
from benchmarks.interference import measure as measured
from benchmarks.interference.scenarios import SMALL, Result, Size
from benchmarks.interference.world import Board, Fleet, Work, steady
from benchmarks.report import Report


def test_looks_and_scores_cost_something() -> None:
    report = Report("interference", BENCHMARK.about, machine.describe(), 1)
    measured.looks_and_scores(report, warm=3, instances=3, looks=2)
    assert "scores of 3 instances" in report.figures
    assert all(figure.median > 0 for figure in report.figures.values())


def test_hot_boards_hand_over_until_the_throughput_is_ideal() -> None:
    """5 s of CPU: 20 simulated minutes of six boards."""
    result = scenarios.internal(seed=1, variable=False, minutes=20, size=SMALL)
    print(result)
    assert result.first < 0.8 * result.ideal, "without moves hot boards cannot serve all"
    assert result.short <= 0.00413
    assert result.p99_s < 0.1 * result.p99_first_s
    assert 0 < result.moves <= 40


def _over_its_room() -> Fleet:
    """A board that needs twice what it has, in instances of one flow, and two that have nothing to do."""
    works = {f"i{n}": Work(steady(20.0), 0.01, 100.0) for n in range(10)}
    return Fleet([Board("a", works), Board("b", {}), Board("c", {})], Random(1))


def test_instances_of_one_flow_leave_a_board_that_is_over_its_room_one_after_the_other() -> None:
    fleet = _over_its_room()
    for _ in fleet.run(0.0, 120.0):
        pass
    first, second, *_ = (at for at, *_ in fleet.moves)
    assert second - first <= 45.0, "no rest of a minute between moves of one flow"


def test_an_instance_that_the_best_board_does_not_admit_goes_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = _over_its_room()

    async def refuse(sender: str, args: Mapping[str, Any]) -> Any:
        return {"admitted": False}

    monkeypatch.setattr(fleet.agents["b"].moves, "serve_admission", refuse)
    for _ in fleet.run(0.0, 30.0):
        pass
    assert [to for *_, to in fleet.moves] == ["c"]
    assert fleet.refused == 0


def test_under_a_sinusoidal_load_few_instances_move() -> None:
    """2 s of CPU: two simulated hours of three boards."""
    made = scenarios.moves_per_board_and_hour(seed=1, hours=2, period_s=600.0, boards=3, instances=3)
    print(made)
    assert max(made) < 4
    assert made[1] <= 1


def test_under_a_constant_load_nothing_moves_after_settling() -> None:
    """2 s of CPU: two simulated hours of three boards, one of them hot."""
    made = scenarios.moves_under_constant_load(seed=1, hours=2, size=Size(3, 1, 3, 15))
    print(made)
    assert made[0] > 0
    assert made[1] == 0


def test_a_day_leaves_no_memory_behind() -> None:
    assert measured.growth(1) < 1.05


def test_what_is_recovered_is_a_part_of_what_was_lost() -> None:
    load = Load()
    result = Result(1, 80.0, 95.0, 100.0, 2.0, 0.5, 0.4, 3, 60.0, 0, load, load)
    assert (result.recovered, result.p99_less) == (0.75, 0.75)
    assert result.short == pytest.approx(0.05)
