"""Hints work as pasted, and a wrong command line says so where it stands."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.__main__ import main as agent
from benchmarks.__main__ import names as benchmark_names
from edgert import install_hint
from edgert.central.collector.__main__ import main as collector
from edgert.cli.main import build_parser, main
from edgert.core.command_line import Parser
from edgert.core.errors import DocumentError, EdgertError
from edgert.mqtt.clients.deployment import DeploymentAnswer, read_answer_untrusted
from edgert.operators.state import aggregate_calls
from gateway.__main__ import main as gateway

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODULES = {"delta-spark": "delta", "protobuf": "google"}
"""Top-level modules that are called otherwise than their package."""
EXTRA = re.compile(r"\[([a-z]+)\]")
AGENT = "from agent.__main__ import main; sys.exit(main(sys.argv[1:]))"
COLLECTOR = "from edgert.central.collector.__main__ import main; sys.exit(main(sys.argv[1:]))"


def without(modules: tuple[str, ...], code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program on a machine that does not have these modules."""
    lacking = f"import sys; sys.modules.update(dict.fromkeys({modules!r})); "
    return subprocess.run(
        [sys.executable, "-c", lacking + code, *arguments],
        capture_output=True, check=False, text=True, cwd=ROOT, timeout=60,
    )  # fmt: skip


def test_the_collector_without_pyarrow_says_how_to_install_it_and_shows_no_traceback() -> None:
    done = without(("pyarrow", "deltalake"), COLLECTOR, "--root", "x")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert re.match(r"edgert-collector: (pyarrow|deltalake) is not installed; install it with: ", line)
    assert pasted(line) == f"{ROOT}[central]"


def pasted(hint: str) -> str:
    """The requirement of the command in a hint, which names the Python that runs."""
    command = shlex.split(hint.partition(" with: ")[2])
    assert sys.executable in command
    return command[-1]


def test_the_agent_without_its_packages_says_how_to_install_them_and_so_does_its_check() -> None:
    modules = ("cryptography", "pyroute2", "zeroconf")
    started = without(modules, AGENT)
    assert (started.returncode, started.stdout) == (1, "")
    [line] = started.stderr.splitlines()
    assert line.startswith("edgert-agent: not installed: cryptography, pyroute2, zeroconf; install with: ")
    assert pasted(line) == f"{ROOT}[agent]"
    checked = without(modules, AGENT, "check")
    assert checked.returncode == 1
    [line] = [line for line in checked.stdout.splitlines() if "zeroconf" in line]
    assert pasted(line) == f"{ROOT}[agent]"


def test_a_flow_whose_aggregate_has_no_package_here_is_refused_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aggregate_calls, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="datasketches for quantiles") as refused:
        aggregate_calls.parse_aggregate("q", "quantiles(t)")
    assert pasted(str(refused.value)) == f"{ROOT}[sketches]"


def test_each_module_of_an_extra_is_known_to_the_hints() -> None:
    named = {
        MODULES.get(name, name): extra
        for extra, requirements in PROJECT["optional-dependencies"].items()
        for name in (re.split(r"[^A-Za-z0-9_-]", requirement)[0] for requirement in requirements)
        if name != install_hint.NAME
    }
    assert named == install_hint.EXTRAS


def test_a_folder_that_the_user_may_not_write_to_needs_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert install_hint.command("agent").startswith(f"sudo {sys.executable} -m pip install ")


def test_no_page_and_no_message_installs_edgert_from_an_index() -> None:
    files = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("edgert/**/*.py"), *ROOT.glob("agent/**/*.py")]
    found = [line for file in files for line in file.read_text().splitlines() if "pip install" in line]
    assert len(found) > 5
    assert not [line for line in found if re.search(r"pip install (-\S+ )*['\"]?edgert", line)]
    assert {extra for line in found for extra in EXTRA.findall(line)} <= {*PROJECT["optional-dependencies"]}


def test_the_collector_tells_its_version_and_options_without_pyarrow() -> None:
    assert without(("pyarrow",), COLLECTOR, "--version").stdout.startswith("edgert ")
    assert "--broker" in without(("pyarrow",), COLLECTOR, "--help").stdout


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        ("/home/a b/edgert", "/home/a b/edgert[demo]"),
        ("/tmp/edgert-1.0-py3-none-any.whl", "edgert[demo] @ file:///tmp/edgert-1.0-py3-none-any.whl"),
        ("git+https://example.org/edgert", "edgert[demo] @ git+https://example.org/edgert"),
        (None, ".[demo]"),  # and a remark on where the command belongs
    ],
)
def test_an_extra_comes_from_where_the_package_came_from(
    origin: str | None, requirement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install_hint, "_origin", lambda: origin)
    assert install_hint.requirement("demo") == requirement
    assert shlex.split(install_hint.command("demo"), comments=True)[-1] == requirement
    assert ("in the folder of edgert's source" in install_hint.command("demo")) == (origin is None)


@pytest.mark.parametrize(
    ("arguments", "usage", "near"),
    [
        (["deploy", "x.toml", "--brokr", "h"], "usage: edgert deploy", "--broker"),
        (["central", "show", "t", "--limt", "5"], "usage: edgert central show", "--limit"),
        (["--vrsion", "check", "x"], "usage: edgert ", "--version"),
    ],
)
def test_a_wrong_option_shows_the_usage_of_its_command(
    arguments: list[str], usage: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    shown = capsys.readouterr().err
    assert ended.value.code == 2
    assert shown.startswith(usage)
    assert f"did you mean {near}?" in shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["stauts"], "did you mean status?"),
        (["central", "shwo", "t"], "did you mean show?"),
        (["simulate", "x", "--rate", "1", "--policy", "rnadom"], "did you mean random?"),
        (["--config", "x", "status"], "--config: expected behind the whole command, such as: edgert "),
        (["sched", "--json", "status"], "such as: edgert sched status --json"),
        (["central", "--root=x", "show", "t"], "--root=x: expected behind the whole command"),
    ],
)
def test_a_misspelt_command_and_an_option_before_it_are_refused_with_the_right_one(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of all commands that have none below."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in below:
        for child in action.choices.values():
            yield from leaves(child)
    if not below:
        yield parser


def test_options_of_a_command_stand_behind_all_of_its_words() -> None:
    def options(parser: argparse.ArgumentParser) -> set[str]:
        return {o for a in parser._actions for o in a.option_strings} - {"-h", "--help", "--version"}

    def below(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield parser
                for child in action.choices.values():
                    yield from below(child)

    assert not {parser.prog: options(parser) for parser in below(build_parser()) if options(parser)}
    readers = {p.prog for p in leaves(build_parser()) if "--config" in options(p)}
    assert {"edgert status", "edgert sched dry-run", "edgert config check", "edgert central show"} <= readers


@pytest.mark.parametrize(
    ("program", "arguments", "near"),
    [
        (gateway, ["--confg", "x"], "--config"),
        (collector, ["--brokr", "h"], "--broker"),
        (agent, ["--confg=x"], "--config"),
        (main, ["deploy", "--remov", "x"], "--remove"),
        (collector, ["--flee", "f"], "--fleet"),
    ],
)
def test_a_wrong_or_shortened_option_of_any_program_is_refused_with_the_right_one(
    program: Callable[[list[str]], int], arguments: list[str], near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        program(arguments)
    assert ended.value.code == 2
    assert f"did you mean {near}?" in capsys.readouterr().err


def test_parsers_of_all_commands_are_of_this_kind() -> None:
    [commands] = [a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    assert all(isinstance(parser, Parser) for parser in commands.choices.values())


def test_a_removal_of_a_flow_that_there_is_not_is_an_error() -> None:
    from edgert.cli.deploy import _told

    missing = read_answer_untrusted(b'{"accepted": true, "version": null, "removed": true, "existed": false}')
    assert missing is not None
    with pytest.raises(EdgertError, match="--remove: expected the name of a flow of gateway g1, got 'tpyo'"):
        _told("tpyo", "g1", missing, removed=True)
    older = read_answer_untrusted(b'{"accepted": true, "version": null, "removed": true}')
    assert older is not None
    assert not older.existed, "as a gateway of an earlier version says it"
    stopped = read_answer_untrusted(b'{"accepted": true, "version": null, "removed": true, "existed": true}')
    assert stopped is not None
    assert "removed" in _told("f", "g1", stopped, removed=True)
    assert "version 2 is removed" in _told("f", "g1", DeploymentAnswer(True, 2), removed=True)
    with pytest.raises(DocumentError):
        _told("f", "g1", DeploymentAnswer(False), removed=True)


def examples() -> dict[str, list[str]]:
    """The arguments of the Makefile's examples, by target."""
    found = re.findall(r'make (\w+) (?:BOARD=\w+ )?ARGS="([^"]*)"', (ROOT / "Makefile").read_text())
    return {name: shlex.split(arguments) for name, arguments in found if "NAME" not in arguments}


def test_the_examples_of_the_makefile_are_command_lines_that_work() -> None:
    given = examples()
    assert set(given) == {"demo", "test", "bench", "bundle"}
    build_parser().parse_args(["demo", *given["demo"]])
    known = (ROOT / "images/bundle.py").read_text()
    assert all(f'"{option}"' in known for option in given["bundle"] if option.startswith("--"))
    assert given["bench"][0] in benchmark_names()


def test_the_tests_that_the_makefile_names_are_found() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *examples()["test"]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr


def shell_blocks() -> list[tuple[str, str]]:
    """(page, block) of every block of shell in README and docs."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        (str(page.relative_to(ROOT)), textwrap.dedent(block))
        for page in pages
        for block in re.findall(r"^ *```sh\n(.*?)^ *```$", page.read_text(encoding="utf-8"), re.M | re.S)
    ]


def edgert_commands(block: str) -> list[list[str]]:
    """The arguments of each `edgert` command that stands at the beginning of a line."""
    whole = re.sub(r'"[^"]*"', lambda quoted: quoted[0].replace("\n", " "), block.replace("\\\n", " "))
    found = []
    for line in re.findall(r"^(?:sudo )?(?:\S*/)?edgert (.*)", whole, re.M):
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        found.append(list(itertools.takewhile(lambda word: word[0] not in "&|>;", words)))
    return found


def test_every_block_of_shell_on_a_page_can_be_pasted() -> None:
    """The shell understands it, no prompt stands before a command, and `edgert` takes the options."""
    blocks = shell_blocks()
    assert {"README.md", "docs/operate.md", "docs/board.md", "docs/own-sensor.md"} <= {page for page, _ in blocks}
    for page, block in blocks:
        done = subprocess.run(["sh", "-n"], input=block, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (page, block, done.stderr)
        assert not re.search(r"^\$ ", block, re.M), (page, block)
        for arguments in edgert_commands(block):
            build_parser().parse_args(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["agent.osched", "--config", "{}/nowhere.toml"],
        ["gateway", "--config", "{}/nowhere.toml"],
        ["agent", "--config", "{}/nowhere.toml"],
        ["edgert", "demo", "--flow", "{}/nowhere.toml"],
        ["edgert", "check", "{}/nowhere.toml"],
    ],
    ids=" ".join,
)
def test_a_file_that_is_not_there_is_said_in_words(arguments: list[str], tmp_path: Path) -> None:
    named = [text.format(tmp_path) for text in arguments]
    done = subprocess.run([sys.executable, "-m", *named], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode in (1, 2)
    assert f"{tmp_path}/nowhere.toml: expected a readable" in done.stderr
    assert "No such file or directory" in done.stderr
    assert "Errno" not in done.stderr
