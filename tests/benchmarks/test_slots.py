"""The benchmark of slots, in short: real slots, fed in their own processes."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.processes import MOSQUITTO
from benchmarks.report import Options, Report
from benchmarks.slots import host, measure
from benchmarks.slots.behind import behind
from tests.waiting import DEADLINE_S


def test_what_two_slots_must_bear_is_a_number_of_rows_whatever_a_row_costs_by_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = {"rates": [60_000.0, 60_000.0], "cpu_us": 8.0, "rss_mb": [30.0], "p99_ms": 10.0, "shed": 0}
    monkeypatch.setattr(measure, "_host", lambda *_: told)

    def over_mqtt(options: Options, report: Report, folder: Path, slots: int, *spans: float) -> None:
        report.add(f"borne within 100 ms, over MQTT, slots = {slots}", 9_000.0, "messages/s")

    monkeypatch.setattr(measure, "_over_mqtt", over_mqtt)
    monkeypatch.setattr(measure, "greatest_rate", lambda bears, first, quick: (first, bears(first)))

    @contextmanager
    def by_hand(*_: Any) -> Any:
        yield SimpleNamespace(read=lambda: "1e9")

    monkeypatch.setattr(measure, "module", by_hand)
    report = Report("slots", "x", {}, 1)
    measure.measure(Options(True, 1, say=lambda text: None), report)
    bars = {f.name: f.bar.limit for f in (*report.figures.values(), *report.ratios.values()) if f.bar}
    name = "150,000 rows/s / borne within 100 ms, fed in the slots, 2 slots"
    assert bars == {name: 1.0, "one slot / two slots, rows per second": 1 / 1.7}
    assert not report.figures[name].holds, "84,000 rows/s"


@pytest.mark.integration
@pytest.mark.skipif(MOSQUITTO is None, reason="needs mosquitto")
def test_behind_a_broker_every_answer_comes_back_and_each_program_has_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.slots.behind.LATE_MS", 1e3 * DEADLINE_S)  # a busy machine may send its load late
    monkeypatch.setattr("benchmarks.slots.behind.LAST_S", DEADLINE_S)
    with behind(tmp_path, 2) as gateway:
        told = gateway.load(500.0, 1.5, 3.0)
        assert told["fault"] == ""
        assert 0 < told["p99_ms"] < 2e3 * DEADLINE_S
        assert min(told[program] for program in ("generator", "broker", "daemon", "slots")) > 0
        assert told["rate"] > 0
        assert told["rows_per_turn"] >= 1


@pytest.mark.integration
def test_both_slots_work_and_all_that_they_take_reaches_the_sinks() -> None:
    told = asyncio.run(host.measure("pred", 2, 0.1, 0.2))
    assert len(told["rates"]) == 2
    assert min(told["rates"]) > 100
    assert max(told["rss_mb"]) < 100
    assert told["cpu_us"] > 0
