"""The speed of a core, on boards that are busy."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, chain
from pathlib import Path

import pytest

from agent.core_speed import FILE, LOOKS, LOOPS, REPETITIONS, CoreSpeed, measured, processor


def speed_of(folder: Path, measured_now: Iterable[float], kind: str = "Cortex-A76") -> CoreSpeed:
    """A look takes the next of these measurements; the last one is all that comes then."""
    found = list(measured_now)
    return CoreSpeed(folder, kind, lambda: found.pop(0) if len(found) > 1 else found[0])


def test_the_best_of_several_runs_counts_by_a_clock_of_cpu_time() -> None:
    runs_s = [0.004, 0.001, 0.002, 0.003, 0.0025]
    assert len(runs_s) == REPETITIONS
    readings = accumulate(chain.from_iterable((0.0, run_s) for run_s in runs_s))
    assert measured(lambda: next(readings)) == pytest.approx(LOOPS / 0.001 / 1e6)


def test_boards_that_are_alike_come_to_one_speed_however_busy_they_were_at_first(tmp_path: Path) -> None:
    """It was measured once, when the agent began: 17 to 35 on like boards."""
    found = []
    for name, looks in {"idle": [35.0], "busy": [17.0, 21.0, 34.8, 19.0], "busier": [19.0] * 40 + [34.9, 18.0]}.items():
        (tmp_path / name).mkdir()
        speed = speed_of(tmp_path / name, looks)
        found.append([speed.look() for _ in range(LOOKS)][-1])
    assert found == pytest.approx([35.0] * 3, rel=0.02)


def test_a_speed_outlives_the_agent_on_the_same_kind_of_processor(tmp_path: Path) -> None:
    speed_of(tmp_path, [35.0]).look()
    assert speed_of(tmp_path, [17.0]).look() == 35.0
    assert speed_of(tmp_path, [17.0], kind="Cortex-A53").look() == 17.0, "the card is in another board"
    assert speed_of(tmp_path, [12.0]).look() == 12.0


@pytest.mark.parametrize("text", ["", "35", "{}", '{"kind": "Cortex-A76", "speed": "fast"}', '{"kind": "Cortex-A76"}'])
def test_a_damaged_file_is_measured_anew(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    assert speed_of(tmp_path, [17.0]).look() == 17.0


def test_looks_come_to_an_end_and_small_differences_are_no_news(tmp_path: Path) -> None:
    speed = speed_of(tmp_path, [20.0, 20.3, *[19.0] * (LOOKS - 2), 30.0])
    assert {speed.look() for _ in range(2 * LOOKS)} == {20.0}


def test_kinds_of_processors_are_told_apart(tmp_path: Path) -> None:
    arm, x86 = tmp_path / "arm", tmp_path / "x86"
    arm.write_text("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n\nprocessor\t: 1\nCPU part\t: 0xd05\n")
    x86.write_text("processor\t: 0\nmodel name\t: AMD EPYC\n")
    (tmp_path / "cpu0/cpufreq").mkdir(parents=True)
    (tmp_path / "cpu0/cpufreq/cpuinfo_max_freq").write_text("2400000\n")
    assert processor(arm, tmp_path).startswith("0x41 0xd05 0xd0b 2400000 kHz ")
    assert processor(x86, tmp_path / "none").startswith("AMD EPYC ")
    assert processor(tmp_path / "none", tmp_path / "none")
