"""How much of the system the units leave to their programs, as systemd reckons it (0 nothing, 10 all)."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from agent.membership.files import read_keys
from edgert.cli.board import requests
from edgert.cli.main import main
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
        ("edgert-fleet-serve.service", 2.0),
        ("../images/files/etc/systemd/system/edgert-renewal.service", 4.0),
        ("../images/files/etc/systemd/system/edgert-enrolment.service", 4.0),
        ("../images/files/etc/systemd/system/edgert-wifi.service", 4.0),
        # root, with devices: it attaches a bundle of a web server as one
        ("../images/files/etc/systemd/system/edgert-update.service", 7.5),
        ("../images/files/etc/systemd/system/edgert-confirm.service", 7.5),
        # a drop-in: what Debian's unit adds is a program, and commands that the drop-in takes away
        ("../images/files/etc/systemd/system/mosquitto.service.d/edgert.conf", 2.0),
    ],
)
def test_exposure(unit: str, at_most: float, tmp_path: Path) -> None:
    text = (UNITS / unit).read_text(encoding="utf-8")
    whole = text if "ExecStart=" in text else f"{text}\nExecStart=/bin/true\n"
    copy = tmp_path / Path(unit).with_suffix(".service").name
    copy.write_text(whole, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(copy)],
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
            text = re.sub("/opt/edgert/bin/edgert|/usr/sbin/dropbear", "/bin/true", path.read_text(encoding="utf-8"))
            text = re.sub("(?m)^RestartMode=.*$", "", text)  # systemd 254 has it, that of Debian 12 not yet
            units.append(tmp_path / path.name)
            units[-1].write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "edgert-" in line]
    assert ours == []
    assert {path.suffix for path in units} == {".service", ".path", ".timer"}


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


def test_the_agent_gets_a_copy_of_the_key_that_root_alone_may_read_again_when_it_changes(tmp_path: Path) -> None:
    """At its start, and while it runs: systemd's own copy (LoadCredential=) would be that of the start for ever."""
    unit = (UNITS / "edgert-agent.service").read_text(encoding="utf-8").splitlines()
    key, copy = tmp_path / "fleet.key", tmp_path / "run/edgert-agent-key/fleet.key"
    variables = next(line for line in unit if line.startswith("Environment=FLEET_KEY="))
    assert (
        variables
        == f"Environment=FLEET_KEY=/etc/edgert/fleet.key EDGERT_AGENT_KEY_FILE=/run/{copy.parent.name}/fleet.key"
    )
    env = {**os.environ, "FLEET_KEY": str(key), "EDGERT_AGENT_KEY_FILE": str(copy)}
    for directive, change in (("ExecStartPre=+", ()), ("ExecReload=+", ("--add",))):
        assert main(["fleet", "key", str(key), *change]) == 0
        line = next(line for line in unit if line.startswith(directive)).removeprefix(directive)
        command = line.replace("%%", "%").replace("$$", "$").replace("/run/edgert)", f"{tmp_path})")
        subprocess.run(shlex.split(command), env=env, check=True)
        assert copy.stat().st_mode & 0o777 == 0o400
        assert read_keys(copy) == read_keys(key)
    assert copy.parent.stat().st_mode & 0o777 == 0o755
    assert len(read_keys(copy)) == 2


def test_a_change_of_the_key_file_reloads_the_agent() -> None:
    """On a board that was set up by hand, and on one from an image, where drop-ins name another file."""
    assert "Wants=edgert-agent-key.path" in (UNITS / "edgert-agent.service").read_text(encoding="utf-8").splitlines()
    reload = (UNITS / "edgert-agent-key.service").read_text(encoding="utf-8").splitlines()
    assert "ExecStart=/bin/systemctl try-reload-or-restart edgert-agent.service" in reload
    for unit, setting in (
        ("edgert-agent.service", "ConditionPathExists="),
        ("edgert-agent.service", "Environment=FLEET_KEY="),
        ("edgert-agent-key.path", "PathChanged="),
    ):
        assert f"\n{setting}/etc/edgert/fleet.key" in (UNITS / unit).read_text(encoding="utf-8")
        drop_in = (OF_IMAGES / f"{unit}.d/identity.conf").read_text(encoding="utf-8").splitlines()
        values = [line for line in drop_in if line.startswith(setting)]
        assert values[-1] == f"{setting}/var/edgert/identity/fleet.key"
        assert len(values) == 1 + (setting[-5:] != "_KEY="), "a list is emptied first"


def test_the_steps_of_the_docs_make_the_files_that_the_services_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (UNITS.parent / "docs/fleet.md").read_text(encoding="utf-8")
    (made,) = re.findall(r"^ +```sh\n((?:.*\n)*?) +```", page, re.MULTILINE)
    taken_apart = re.findall(r"((?:^ {7}.*\n)+)", page, re.MULTILINE)[0]
    monkeypatch.chdir(tmp_path)
    for line in textwrap.dedent(made).splitlines():
        words = shlex.split(line)
        if words[0] == "edgert":
            assert main(words[1:]) == 0
        else:
            subprocess.run(["sh", "-c", line], check=True)
    board = tmp_path / "etc"
    board.mkdir()
    shutil.copy("boards/north/edgert.toml", board)
    script = textwrap.dedent(taken_apart).replace("/etc/edgert", str(board)).replace("python3", sys.executable)
    subprocess.run(["sh", "-c", script], check=True)
    assert {path.name: path.stat().st_mode & 0o777 for path in board.iterdir()} == {
        "board.pem": 0o644, "board.key": 0o600, "ca.pem": 0o644, "crl.pem": 0o644, "fleet.key": 0o600,
    }  # fmt: skip
    assert read_keys(board / "fleet.key") == read_keys(tmp_path / "ca/fleet.key")
    for name in re.findall(r"/etc/edgert/([\w.]+)", page[: page.index("## Commands")]):
        assert (board / name).exists() or name in ("edgert.toml", "agent.toml", "gateway.toml"), name
