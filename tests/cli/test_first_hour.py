"""Hints work as pasted, and a wrong command line says so where it stands."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from benchmarks.__main__ import names as benchmark_names
from edgert import install_hint
from edgert.cli._parser import Parser
from edgert.cli.main import build_parser, main
from edgert.core.errors import DocumentError, EdgertError
from edgert.mqtt.clients.deployment import Answer, read_answer_untrusted

ROOT = Path(__file__).parents[2]
WITHOUT = "import sys; sys.modules.update(dict.fromkeys(('pyarrow', 'deltalake'))); "
COLLECTOR = "from edgert.central.collector.__main__ import main; sys.exit(main(sys.argv[1:]))"


def without_pyarrow(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code, *arguments],
        capture_output=True, check=False, text=True, cwd=ROOT, timeout=60,
    )  # fmt: skip


def test_the_collector_without_pyarrow_says_how_to_install_it_and_shows_no_traceback() -> None:
    done = without_pyarrow(COLLECTOR, "--root", "x")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert re.match(r"edgert-collector: edgert-collector needs (pyarrow|deltalake); install it with: ", line)
    command = shlex.split(line.partition("install it with: ")[2])
    assert command[0] == sys.executable or command[0] == "uv"
    folder, _, extra = command[-1].partition("[")
    project = tomllib.loads((Path(folder) / "pyproject.toml").read_text())["project"]
    assert extra.rstrip("]") in project["optional-dependencies"]


def test_the_collector_tells_its_version_and_options_without_pyarrow() -> None:
    assert without_pyarrow(COLLECTOR, "--version").stdout.startswith("edgert ")
    assert "--broker" in without_pyarrow(COLLECTOR, "--help").stdout


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        ("/home/a b/edgert", "/home/a b/edgert[demo]"),
        ("/tmp/edgert-1.0-py3-none-any.whl", "edgert[demo] @ file:///tmp/edgert-1.0-py3-none-any.whl"),
        ("git+https://example.org/edgert", "edgert[demo] @ git+https://example.org/edgert"),
        (None, ".[demo]"),
    ],
)
def test_an_extra_comes_from_where_the_package_came_from(
    origin: str | None, requirement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install_hint, "_origin", lambda: origin)
    assert install_hint.requirement("demo") == requirement
    assert shlex.split(install_hint.command("demo"))[-1] == requirement


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
    assert "version 2 is removed" in _told("f", "g1", Answer(True, 2), removed=True)
    with pytest.raises(DocumentError):
        _told("f", "g1", Answer(False), removed=True)


def test_the_examples_of_the_makefile_are_command_lines_that_work() -> None:
    examples = re.findall(r'make (\w+) ARGS="([^"]*)"', (ROOT / "Makefile").read_text())
    given = {name: shlex.split(arguments) for name, arguments in examples if "NAME" not in arguments}
    assert set(given) >= {"demo", "test", "bench"}
    build_parser().parse_args(["demo", *given["demo"]])
    assert (ROOT / given["test"][0]).is_dir()
    assert given["bench"][0] in benchmark_names()
