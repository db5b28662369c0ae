"""How much of the system the units leave to their programs, as systemd reckons it (0 nothing, 10 all)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from edgert.cli.board import requests
from edgert.core.settings.gateway import GatewaySettings, update_request

UNITS = Path(__file__).parents[2] / "systemd"
OF_IMAGES = Path(__file__).parents[2] / "images/files/etc/systemd/system"
NEEDS_SYSTEMD = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")


@NEEDS_SYSTEMD
@pytest.mark.parametrize(
    ("unit", "at_most"),
    [
        ("edgert-gateway.service", 2.0),
        ("edgert-agent.service", 2.5),
        # root, with devices: it attaches a bundle of a web server as one
        ("../images/files/etc/systemd/system/edgert-update.service", 7.5),
    ],
)
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


@NEEDS_SYSTEMD
def test_units_of_an_image_are_understood(tmp_path: Path) -> None:
    """Each directive, and the programs that are there."""
    units = []
    for path in sorted(OF_IMAGES.glob("edgert-*.*")):
        if path.is_file():
            text = path.read_text(encoding="utf-8").replace("/opt/edgert/bin/edgert", "/bin/true")
            units.append(tmp_path / path.name)
            units[-1].write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "edgert-" in line]
    assert ours == []
    assert {path.suffix for path in units} == {".service", ".path"}


def test_the_request_that_the_gateway_leaves_is_that_which_systemd_waits_for() -> None:
    text = (OF_IMAGES / "edgert-update.path").read_text(encoding="utf-8")
    assert f"PathExists={requests.REQUEST}" in text.splitlines()
    settings, service = GatewaySettings(), {"RUNTIME_DIRECTORY": "/run/edgert"}
    assert update_request(settings, service, root=False) == str(requests.REQUEST)
    assert settings.updates.state == str(requests.STATE)
    assert "RuntimeDirectory=edgert" in (UNITS / "edgert-gateway.service").read_text(encoding="utf-8").splitlines()


def test_the_end_of_the_agent_is_not_that_of_engines_in_its_control_group() -> None:
    """With cgroup version 2 whole processes of engines are in groups below the agent's service."""
    text = (UNITS / "edgert-agent.service").read_text(encoding="utf-8")
    assert "Delegate=yes" in text
    assert "KillMode=process" in text.splitlines()
