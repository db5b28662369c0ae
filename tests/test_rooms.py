"""Rules of the rooms: folders, names, imports without circles, references that lead somewhere, tests without sleeps."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from edgert.core.config import entries
from edgert.core.settings import programs
from tests.imports import between_packages, circles, imported, modules
from tests.waiting import DEADLINE_S

ROOT = Path(__file__).parents[1]
ALIAS = re.compile("_?[A-Z]+[a-z]+[A-Za-z]*")  # constants have capitals only
FOLDERS = ("edgert", "gateway", "agent", "provisioning", "images", "hw-tests")
"""Of the product."""
MOST_MODULES = 16
MOST_TESTS = 30
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
OF_FILES = {"toml", "sock", "db", "service", "py", "epoch", "hellos", "drivers"}
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
    "tests/gateway/web/webdriver.py": "waits for a browser",
    "tests/mqtt/test_paho_client.py": "nothing more comes",
    "tests/runtime/pool/test_pool_lending.py": "an operator that takes its time",
}


def sleeps(text: str) -> bool:
    """Whether tests wait by the clock. `asyncio.sleep(0)` only lets others go on; `wait` is a sleep if it is that of an
    event that no other thread has, or if a loop calls it for less than the deadline of a test."""
    nodes = list(ast.walk(ast.parse(text)))
    loops = [node for node in nodes if isinstance(node, ast.For | ast.While | ast.AsyncFor)]
    in_loops = {id(node) for loop in loops for node in ast.walk(loop)}
    return any(_sleeps(node, in_loop=id(node) in in_loops) for node in nodes if isinstance(node, ast.Call))


def _sleeps(call: ast.Call, *, in_loop: bool) -> bool:
    function = ast.unparse(call.func)
    times = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "timeout")][:1]
    if function in ("time.sleep", "asyncio.sleep"):
        return ast.unparse(times[0]) != "0"
    numbers = [time.value for time in times if isinstance(time, ast.Constant) and isinstance(time.value, int | float)]
    waits = function.endswith(".wait") and any(0 < number < DEADLINE_S for number in numbers)
    return waits and (in_loop or function.endswith("Event().wait"))


@pytest.mark.parametrize(
    "text",
    [
        "time.sleep(1)", "await asyncio.sleep(0.1)", "threading.Event().wait(2.0)", "threading.Event().wait(timeout=1)",
        "while not stop.wait(0.1):\n    look()", "for _ in range(9):\n    if a.b.wait(timeout=1):\n        break",
    ],
)  # fmt: skip
def test_each_way_to_sleep_is_found(text: str) -> None:
    assert sleeps(text)


@pytest.mark.parametrize(
    "text",
    [
        "await asyncio.sleep(0)", "await asyncio.Event().wait()", "assert leave.wait(0.1)",
        "for one in all:\n    one.wait(60.0)",
    ],
)  # fmt: skip
def test_waits_for_a_condition_are_no_sleeps(text: str) -> None:
    assert not sleeps(text)


def test_unit_tests_wait_for_conditions_and_do_not_sleep() -> None:
    marked = re.compile(r"^pytestmark = .*(?:\n    .*)*pytest\.mark\.(?:integration|spark)", re.MULTILINE)
    files = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("*.py")
        if not any(path.is_relative_to(ROOT / room) for room in REAL_TIME) and not marked.search(path.read_text())
    }
    assert len(files) > 400
    assert {name for name in files if sleeps((ROOT / name).read_text())} == set(SLEEPS)
