"""The benchmark of interference, in short."""

from __future__ import annotations

import pytest

from benchmarks import machine
from benchmarks.interference import BENCHMARK
from benchmarks.interference import measure as measured
from benchmarks.report import Options, Report


def test_scores_and_predictions_cost_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "INSTANCES", 3)
    monkeypatch.setattr(measured, "TRIES", 2)
    report = Report("interference", BENCHMARK.about, machine.describe(), 1)
    BENCHMARK.measure(Options(True, 1, say=lambda text: None), report)
    assert {"scores of 3 instances", "predictions and rings of 3 instances"} < set(report.figures)
    assert all(figure.median > 0 for figure in report.figures.values())
