"""How much of the system the units leave to their programs, as systemd reckons it (0 nothing, 10 all)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[2] / "systemd"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize(("unit", "at_most"), [("edgert-gateway.service", 2.0), ("edgert-agent.service", 2.5)])
def test_exposure(unit: str, at_most: float) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNITS / unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "offline" in done.stderr:
        pytest.skip("needs systemd-analyze 250 or newer, which reads a unit without a running systemd")
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= at_most, done.stdout


def test_the_end_of_the_agent_is_not_that_of_engines_in_its_control_group() -> None:
    """With cgroup version 2 whole processes of engines are in groups below the agent's service."""
    text = (UNITS / "edgert-agent.service").read_text(encoding="utf-8")
    assert "Delegate=yes" in text
    assert "KillMode=process" in text.splitlines()
