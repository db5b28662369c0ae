"""Rules of the repository itself: locked packages, entry points, and a set-up that says in one line what it needs."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from edgert.cli.main import build_parser

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = ("build", "device", "demo", "everything")
FOREIGN_TO_A_BOARD = {
    "pyspark",
    "delta-spark",
    "deltalake",
    "pyarrow",
    "pandas",
    "numpy",
    "amqtt",
    "matplotlib",
    "pytest",
}


def locked(name: str) -> dict[str, set[str]]:
    """Package -> versions (more than one where they differ by Python) of a lock file."""
    found: dict[str, set[str]] = {}
    for package, version in re.findall(
        r"^([a-z0-9.-]+)==([^ ;\\]+)", (ROOT / "requirements" / f"{name}.txt").read_text(), re.MULTILINE
    ):
        found.setdefault(package, set()).add(version)
    return found


def declared(requirements: list[str]) -> set[str]:
    names = {re.split(r"[<>=\[;~! ]", r)[0].lower().replace("_", "-") for r in requirements}
    return names - {"edgert"}


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_a_hash_and_none_names_a_registry(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert locked(name)
    for entry in re.split(r"\n(?=[a-z0-9])", text)[1:]:
        assert "--hash=sha256:" in entry, entry.splitlines()[0]
    assert not re.search(r"https?:|index-url|find-links|file:", text)


@pytest.mark.parametrize("name", LOCKS)
def test_every_machine_gets_the_same_versions(name: str) -> None:
    everything = locked("everything")
    for package, versions in locked(name).items():
        assert versions <= everything[package], package


def test_locks_hold_all_that_the_project_declares() -> None:
    base = declared(PROJECT["project"]["dependencies"])
    extras = {name: declared(wanted) for name, wanted in PROJECT["project"]["optional-dependencies"].items()}
    groups = {name: declared(wanted) for name, wanted in PROJECT["dependency-groups"].items()}
    assert base | extras["agent"] <= set(locked("device"))
    assert base | extras["demo"] | extras["central"] <= set(locked("demo"))
    assert groups["build"] <= set(locked("build"))
    assert base.union(*extras.values(), *groups.values()) <= set(locked("everything"))


def test_a_board_installs_nothing_of_the_central_side() -> None:
    assert not FOREIGN_TO_A_BOARD & set(locked("device"))


@pytest.mark.parametrize("script", PROJECT["project"]["scripts"].items(), ids=lambda s: s[0])
def test_every_console_script_can_be_called(script: tuple[str, str]) -> None:
    module, _, function = script[1].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_scripts_are_executable() -> None:
    for script in (ROOT / ".ci/run", *(ROOT / "scripts").iterdir()):
        assert script.stat().st_mode & 0o111, script.name


def stub(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)


def set_up(tmp_path: Path, kind: str, *, java: str, mosquitto: bool) -> subprocess.CompletedProcess[str]:
    """Run scripts/setup as a user who may not sudo, on a machine that has or lacks Java and Mosquitto."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    stub(tmp_path / "scripts", "java-home", java)
    commands = tmp_path / "bin"
    stub(commands, "id", "echo 1000")
    stub(commands, "sudo", "exit 1")
    stub(commands, "python3", f'exec {sys.executable} "$@"')
    stub(commands, "apt-get", "echo 'apt-get was called' >&2; exit 100")
    script = (tmp_path / "scripts/setup").read_text()
    assert "PATH=$PATH:/usr/sbin:/sbin" in script
    for name in ("sh", "dirname", "sed", "tail", "tr", "cut", "env"):
        where = shutil.which(name)
        assert where, name
        (commands / name).symlink_to(where)
    if mosquitto:
        stub(commands, "mosquitto", "exit 0")
        stub(commands, "mosquitto_sub", "exit 0")
    (tmp_path / "scripts/setup").write_text(script.replace("PATH=$PATH:/usr/sbin:/sbin", ":"))
    command = [str(tmp_path / "scripts/setup"), kind]
    return subprocess.run(command, capture_output=True, text=True, env={"PATH": str(commands)}, check=False)


@pytest.mark.parametrize(
    ("kind", "java", "mosquitto", "needs", "packages"),
    [
        ("demo", "exit 1", False, "Java 17 or newer", "default-jre-headless"),
        ("test", "exit 1", False, "Java 17 or newer and Mosquitto", "default-jre-headless mosquitto mosquitto-clients"),
        ("test", "exit 1", True, "Java 17 or newer", "default-jre-headless"),
        ("test", "echo /j", False, "Mosquitto", "mosquitto mosquitto-clients"),
    ],
)
def test_who_may_not_install_is_told_in_one_line_what_is_missing(
    kind: str, java: str, mosquitto: bool, needs: str, packages: str, tmp_path: Path
) -> None:
    done = set_up(tmp_path, kind, java=java, mosquitto=mosquitto)
    assert done.returncode == 1
    line = f"edgert: needs {needs}; ask an administrator to run: apt-get install {packages}\n"
    assert done.stdout + done.stderr == line


def test_delta_tables_are_read_in_the_one_way_that_lets_a_process_end() -> None:
    """See `edgert/central/tables/query.py`: a pyarrow dataset over a Delta table may abort the process at its end."""
    others = [
        path.relative_to(ROOT)
        for folder in ("edgert", "tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if path != Path(__file__) and re.search(r"\.to_(pyarrow|pandas)", path.read_text())
    ]
    assert not others


@pytest.mark.parametrize(("page", "most"), [("README.md", 130), ("CHANGELOG.md", 60)])
def test_the_first_pages_stay_short(page: str, most: int) -> None:
    assert (ROOT / page).read_text().count("\n") <= most


def test_setup_refuses_an_unknown_kind() -> None:
    done = subprocess.run([str(ROOT / "scripts/setup"), "all"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "usage: scripts/setup demo|test|lint|image|image-test|ci\n"


UNITS = sorted((ROOT / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_one_that_systemd_takes_and_starts_a_command_of_ours(unit: Path, tmp_path: Path) -> None:
    found = re.search(r"^ExecStart=(?:/opt/edgert)?/bin/(\S+)(.*)$", unit.read_text(), re.MULTILINE)
    assert found
    assert found[1] in (*PROJECT["project"]["scripts"], "systemctl")
    if found[1] == "edgert":
        parsed = build_parser().parse_args(found[2].split())
        assert getattr(parsed, "do", None) or parsed.act
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here to look at the rest of it")
    for other in UNITS:  # the commands are not installed here
        (tmp_path / other.name).write_text(re.sub(r"(?m)^ExecStart=.*$", "ExecStart=/bin/true", other.read_text()))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / unit.name)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])


def test_units_of_two_users_share_no_folder_that_systemd_gives_to_its_user() -> None:
    """On a machine with gateway and collector each start would take the folder from the other."""
    users: dict[str, set[str]] = {}
    for unit in UNITS:
        found = dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE))
        for kind in ("StateDirectory", "CacheDirectory", "RuntimeDirectory", "LogsDirectory"):
            for name in found.get(kind, "").split():
                users.setdefault(f"{kind}={name}", set()).add(found.get("User", unit.stem))
    assert len(users) >= 4
    assert {folder: names for folder, names in users.items() if len(names) > 1} == {}


def test_a_fleet_job_beside_a_collector_is_its_user_and_finds_its_tables() -> None:
    fleet, collector = ((ROOT / "systemd" / f"edgert-{name}.service").read_text() for name in ("fleet", "collector"))
    for line in ("DynamicUser=yes", "StateDirectory=edgert-central", "ConfigurationDirectory=edgert"):
        assert line in fleet.splitlines()
        assert line in collector.splitlines()
    assert "User=edgert-collector" in fleet.splitlines()
    assert "\nUser=" not in collector  # so it is called as the unit is
    assert all("--config /etc/edgert/collector.toml" in text for text in (fleet, collector))
