"""Laboratories of real programs."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from edgert.control.client import call
from tests.integration.rig import ROOT
from tests.lab import faults
from tests.lab.__main__ import main
from tests.lab.cgroups import remove_left_behind
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.root, pytest.mark.integration, pytest.mark.usefixtures("may_make_namespaces"),
]  # fmt: skip

FILE = """
otherwise = {delay_ms = 1}

[[boards]]
name = "g1"
cores = 1
memory_mb = 1024

[[boards]]
name = "g2"
"""


def test_results_are_right_whatever_is_cut_and_killed(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    outcome = faults.run(seed, tmp_path, duration_s=7.0, moves=2)
    print(f"seed {seed}: {outcome}")
    assert outcome.good
    assert outcome.dropped_by_cuts


@pytest.fixture
def up(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A laboratory of two boards by hand."""
    file = tmp_path / "two.toml"
    file.write_text(FILE)
    command = [sys.executable, "-m", "tests.lab", "--socket", str(tmp_path / "run/lab.sock")]
    command += ["up", str(file), "--folder", str(tmp_path / "lab")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("2 boards run")
        yield process
    finally:
        process.kill()
        process.communicate()
        remove_left_behind()


@pytest.fixture
def steer(tmp_path: Path) -> Callable[..., int]:
    return lambda *words: main(["--socket", str(tmp_path / "run/lab.sock"), *words])


def test_steered_by_hand_until_ctrl_c(
    up: subprocess.Popen[str], steer: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert steer("cut", "g1", "g2", "--one-way") == 0
    assert steer("delay", "g2", "g1", "20", "--jitter", "2", "--one-way") == 0
    assert steer("kill", "g2") == 0
    assert steer("status") == 0
    told = capsys.readouterr().out
    assert "g2           10.77.0.3    gateway is down" in told
    assert "g1           → g2           CUT" in told
    assert "g2           → g1           20 ms + 2" in told
    assert steer("start", "g2") == 0
    assert steer("heal") == 0
    linked = lambda: call(tmp_path / "lab/g1/g1/control.sock", "status")["links"]["peers"][0]["connected"]  # noqa: E731
    wait_until(linked, "the link between the boards")
    assert steer("cut", "g1", "g3") == 1
    assert "expected two of central, g1, g2, got g1 and g3" in capsys.readouterr().err
    started = psutil.Process(up.pid).children(recursive=True)
    up.send_signal(signal.SIGINT)
    assert up.wait(60.0) == 0
    wait_until(lambda: not any(process.is_running() for process in started), "the end of all its processes")
    assert not (tmp_path / "run").exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/edgert-lab-{up.pid}-*"))


def test_nothing_is_left_behind_by_one_that_was_killed(up: subprocess.Popen[str]) -> None:
    started = psutil.Process(up.pid).children(recursive=True)
    assert len(started) >= 7  # a switch, three brokers, a collector, two gateways
    up.kill()
    wait_until(lambda: not any(process.is_running() for process in started), "the end of all its processes")
