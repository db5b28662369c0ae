"""Rules of the repository itself: locked packages, entry points, and a set-up that says in one line what it needs."""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from edgert.cli.main import build_parser
from edgert.core.config import entries
from edgert.core.settings import programs
from tests.imports import between_packages, circles, imported, modules

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

ALIAS = re.compile("_?[A-Z]+[a-z]+[A-Za-z]*")  # constants have capitals only
FOLDERS = ("edgert", "gateway", "agent", "provisioning", "images", "hw-tests")
"""Of the product."""
MOST_MODULES = 16
MOST_TESTS = 30
MOST_LINES = 400
PROGRAMS = ("edgert", "gateway", "agent")
"""Packages in which a name stands for one class."""
TWICE = {
    "Ack": "a message of links, and one of the membership: each protocol has its own",
    "Peer": "of a link, and of the membership",
    "Peers": "of links, and of OS scheduling",
    "Ping": "as Ack",
    "Rules": "of placement, and of interference: `agent.fleet` takes both by the names of their modules",
    "Stream": "`operators.builder` has the methods of all operators for that of `flow.builder`",
}
"""Names of two classes, and why a rename would be worse. May only get shorter."""


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


def test_files_that_the_documents_name_exist() -> None:
    """By their whole path, or its end."""
    folders = ("edgert", "gateway", "agent", "provisioning", "images", "benchmarks", "tests")
    paths = [f"/{path.relative_to(ROOT)}" for folder in folders for path in (ROOT / folder).rglob("*.py")]
    pages = [ROOT / "docs/internals.md", *(ROOT / "docs/internals").glob("*.md")]
    named = {name for page in pages for name in re.findall(r"`([\w/]+\.py)`", page.read_text())}
    assert len(named) > 100
    assert not [name for name in sorted(named) if not any(path.endswith(f"/{name}") for path in paths)]


CODE = (*FOLDERS, "benchmarks", "tests")
DOTTED = re.compile(rf"`((?:{'|'.join(CODE)})(?:\.\w+)+)`")
"""A dotted name of ours, which is a module, a name in one, a setting, or a file."""
OF_FILES = {"toml", "sock", "db", "service", "py", "epoch", "drivers"}
"""Endings of files; and `edgert.drivers`, a group of entry points."""


def leads_nowhere(name: str, files: dict[str, Path], settings: set[str]) -> bool:
    if name in settings or OF_FILES & {*name.split(".")}:
        return False
    module, rest = name, ""
    while module not in files:
        module, _, last = module.rpartition(".")
        rest = last
    own = files[module].read_text() if rest else ""
    return bool(rest) and not re.search(rf"\b{rest}\b", own)


def test_what_code_refers_to_exists() -> None:
    """Dotted names of modules and of names in them, pages of the docs; a design that stands in no page is none."""
    files = modules(ROOT, CODE)
    settings = {e.path for kind in programs.PROGRAMS.values() for e in entries(kind)}
    nowhere = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (*files.values(), *ROOT.glob("docs/**/*.md"))
        if path != Path(__file__)
        for text in [path.read_text()]
        for name in (
            *(name for name in DOTTED.findall(text) if leads_nowhere(name, files, settings)),
            *(page for page in re.findall(r"\bdocs/[\w/-]+\.md\b", text) if not (ROOT / page).exists()),
            *re.findall(r"\b[Dd]esign, [\"A-Z]\w+", text),
        )
    ]
    assert not nowhere


def test_a_name_that_leads_nowhere_is_found() -> None:
    files = modules(ROOT, CODE)
    wrong = ("edgert.cli._slots", "gateway.back_in_time", "agent.fleet.cut_off", "edgert.sketches.bloom.Seen")
    assert all(leads_nowhere(name, files, set()) for name in wrong)
    right = ("edgert.boards.slots", "edgert.sketches.bloom.Bloom", "edgert.toml", "gateway.id")
    assert not any(leads_nowhere(name, files, {"gateway.id"}) for name in right)


def test_no_folder_has_more_modules_than_one_look_takes_in() -> None:
    """Its `__init__` counts, too."""
    folders = Counter(path.parent for room in (*FOLDERS, "tests") for path in (ROOT / room).rglob("*.py"))
    most = {folder: MOST_TESTS if folder.is_relative_to(ROOT / "tests") else MOST_MODULES for folder in folders}
    assert not [str(folder.relative_to(ROOT)) for folder, modules in folders.items() if modules > most[folder]]


def test_no_file_is_longer_than_one_reading_takes() -> None:
    lengths = {
        str(path.relative_to(ROOT)): path.read_text().count("\n")
        for room in CODE
        for path in (ROOT / room).rglob("*.py")
    }
    assert len(lengths) > 1_000
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_a_name_stands_for_one_type() -> None:
    """Names with an underscore included; sections of settings aside, which are called as what they are about."""
    files = [path for package in PROGRAMS for path in (ROOT / package).rglob("*.py") if "settings" not in path.parts]
    bodies = [node for path in files for node in ast.parse(path.read_text()).body]
    names = Counter(node.name for node in bodies if isinstance(node, ast.ClassDef))
    assert len(names) > 500
    assert {name for name, classes in names.items() if classes > 1} == {*TWICE}
    aliases = [node for node in bodies if isinstance(node, ast.Assign)]
    meant = {(ast.unparse(node.targets[0]), ast.unparse(node.value)) for node in aliases}
    times = Counter(name for name, value in meant if ALIAS.fullmatch(name) and not value.startswith("TypeVar("))
    assert len(times) > 100
    assert {name for name, meanings in times.items() if meanings > 1 or name in names} == set()


def test_the_page_of_rooms_has_each_with_the_sentence_of_its_package() -> None:
    page = (ROOT / "docs/internals/rooms.md").read_text()
    inits = {init for room in FOLDERS for init in (ROOT / room).rglob("__init__.py")}
    told = {init.parent: ast.get_docstring(ast.parse(init.read_text())) or "" for init in inits}
    first = {folder: " ".join(text.split("\n\n")[0].split()) for folder, text in told.items()}
    rows = {f"| `{folder.relative_to(ROOT)}/` | {sentence} |" for folder, sentence in first.items()}
    assert rows == {line for line in page.splitlines() if line.startswith("| `")}


def test_no_files_and_no_packages_import_each_other_in_a_circle() -> None:
    files = modules(ROOT, (*FOLDERS, "benchmarks", "tests"))
    assert len(files) > 1_000
    graph = imported(files)
    assert circles(graph) == []
    assert circles(between_packages(files, graph)) == []


def test_a_circle_is_found_wherever_the_import_stands(tmp_path: Path) -> None:
    for name, text in {
        "a/__init__": "",
        "a/one": "import a.two",
        "a/two": "def f():\n    from b.three import x",
        "b/__init__": "",
        "b/three": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a import one",
        "b/four": "import b.three",
        "b/__main__": "from a import one",
    }.items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    files = modules(tmp_path, ("a", "b"))
    graph = imported(files)
    assert circles(graph) == [{"a.one", "a.two", "b.three"}]
    assert circles(between_packages(files, graph)) == [{"a", "b"}]
    (tmp_path / "b/three.py").write_text("")
    graph = imported(files)
    assert circles(graph) == circles(between_packages(files, graph)) == []


def test_no_module_imports_a_module_of_tests() -> None:
    """What several tests use is in a module of its own beside them: `worlds.py` where one is enough."""
    found = [
        f"{path.relative_to(ROOT)} imports {name}"
        for folder in ("tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        for name in re.findall(r"^ *(?:from|import) .*\b(test_\w+)", path.read_text(), re.MULTILINE)
    ]
    assert found == []


BESIDE = {"faults", "fuzz", "integration", "lab", "other_brokers", "protocol"}
"""Folders of tests that are about no room."""


def test_rooms_of_tests_are_named_as_those_that_they_test() -> None:
    rooms = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("*/*.py")}
    mirrored = [room for room in rooms if room.parts[0] not in BESIDE]
    assert len(mirrored) > 50
    products = [ROOT, ROOT / "edgert", ROOT / "hw-tests"]
    assert not [room for room in mirrored if not any((product / room).is_dir() for product in products)]


REAL_TIME = {"tests/integration", "tests/faults", "tests/protocol", "tests/lab", "tests/agent/simulation"}
"""Rooms whose tests start processes, or run on a loop whose clock jumps to the next timer."""
SLEEPS = {
    "tests/agent/lease/test_leases.py": "a loop whose clock jumps to the next timer",
    "tests/waiting.py": "what others wait with",
    "tests/brokers.py": "waits for the port of a process",
    "tests/gateway/flows/moving.py": "readings, looks and faults at moments by chance",
    "tests/gateway/checkpoint/test_input_spill.py": "a removal that is not over yet",
    "tests/gateway/flows/test_end_without_state.py": "a change that is not over yet",
    "tests/gateway/flows/test_retire_ending.py": "turns go on for longer than a turn that stands still is waited for",
    "tests/gateway/web/webdriver.py": "waits for a browser",
    "tests/mqtt/test_paho_client.py": "nothing more comes",
    "tests/runtime/pool/test_pool_lending.py": "an operator that takes its time",
}


def sleeps(path: Path) -> bool:
    """Whether a test of `path` waits by the clock (`asyncio.sleep(0)` only lets others go on)."""
    return any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("time.sleep", "asyncio.sleep")
        and ast.unparse(node.args[0]) != "0"
        for node in ast.walk(ast.parse(path.read_text()))
    )


def test_unit_tests_wait_for_conditions_and_do_not_sleep() -> None:
    marked = re.compile(r"^pytestmark = .*(?:\n    .*)*pytest\.mark\.(?:integration|spark)", re.MULTILINE)
    files = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("*.py")
        if not any(path.is_relative_to(ROOT / room) for room in REAL_TIME) and not marked.search(path.read_text())
    }
    assert len(files) > 400
    assert {name for name in files if sleeps(ROOT / name)} == set(SLEEPS)


def test_setup_refuses_an_unknown_kind() -> None:
    done = subprocess.run([str(ROOT / "scripts/setup"), "all"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "usage: scripts/setup demo|test|lint|image|ci\n"


UNITS = sorted((ROOT / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_one_that_systemd_takes_and_starts_a_command_of_ours(unit: Path, tmp_path: Path) -> None:
    found = re.search(r"^ExecStart=(?:/opt/edgert)?/bin/(\S+)(.*)$", unit.read_text(), re.MULTILINE)
    assert found
    assert found[1] in (*PROJECT["project"]["scripts"], "systemctl")
    if found[1] == "edgert":
        assert build_parser().parse_args(found[2].split()).do
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
