"""The `edgert` command: verbs are files, errors are one clear message, the exit status tells."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import edgert
from edgert.cli import main as cli
from edgert.core.errors import EdgertError
from edgert.install_hint import command
from tests.cli.worlds import DOCUMENT

ROOT = Path(__file__).parents[2]


class FakeVerb:
    """A verb whose `run` does what the test wants."""

    HELP = "does what it is told"

    def __init__(self, run: Callable[[], int]) -> None:
        self._run = run

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--loud", action="store_true")

    def run(self, args: argparse.Namespace) -> int:
        return self._run()


def run_verb(monkeypatch: pytest.MonkeyPatch, run: Callable[[], int]) -> int:
    monkeypatch.setattr(cli, "verbs", lambda: {"fake": FakeVerb(run)})
    return cli.main(["fake"])


def raising(error: BaseException) -> Callable[[], int]:
    def run() -> int:
        raise error

    return run


def test_every_file_of_the_package_is_a_verb_with_help() -> None:
    found = cli.verbs()
    assert {"check", "config"} <= set(found)
    assert "main" not in found
    for name, verb in found.items():
        assert verb.HELP.strip(), name
        assert "\n" not in verb.HELP, name
        assert callable(verb.run), name


def test_help_lists_verbs_and_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert re.search(r"^ +check +check the deployment document", text, re.MULTILINE)
    assert "exit status:" in text


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"edgert {edgert.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["no-such-verb"], ["config"], ["check"]])
def test_wrong_command_line_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "usage: edgert" in capsys.readouterr().err


@pytest.mark.parametrize("status", [0, 1])
def test_status_of_the_verb_is_that_of_the_command(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_verb(monkeypatch, lambda: status) == status


def test_error_is_one_message_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_verb(monkeypatch, raising(EdgertError("x: expected 1, got 2"))) == 1
    assert capsys.readouterr().err == "edgert: x: expected 1, got 2\n"


def test_ctrl_c_is_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_verb(monkeypatch, raising(KeyboardInterrupt())) == 130


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    error = ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql")
    assert run_verb(monkeypatch, raising(error)) == 1
    assert f"install it with: {command('central')}" in capsys.readouterr().err


def test_missing_module_of_our_own_is_a_bug_and_stays_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModuleNotFoundError):
        run_verb(monkeypatch, raising(ModuleNotFoundError("edgert.nowhere", name="edgert.nowhere")))


def test_command_line_loads_nothing_heavy() -> None:
    code = "import sys, edgert.cli.main as m; m.build_parser(); print(*{n.partition('.')[0] for n in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"pyspark", "delta", "deltalake", "pyarrow", "pandas", "numpy", "amqtt", "rich", "matplotlib"}
    assert not heavy & set(done.stdout.split())


@pytest.mark.parametrize(
    "command",
    [["edgert", "config", "docs"], ["agent", "check"], ["agent", "check", "--json"]],
    ids=" ".join,
)
def test_reader_that_left_is_no_traceback(command: list[str]) -> None:
    done = unread(command)
    assert done.returncode == 1
    assert done.stderr == b""


def test_reader_that_left_a_simulated_fleet_is_no_traceback(tmp_path: Path) -> None:
    flow = tmp_path / "city-air.toml"
    flow.write_text(DOCUMENT)
    boards = str(ROOT / "tests/lab/boards.toml")
    done = unread(
        ["edgert", "simulate", str(flow), "--rate", "1", "--fleet", boards, "--seconds", "1", "--cost", "minute=5"]
    )
    assert done.returncode == 1
    assert done.stderr == b""


def unread(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    """A program whose standard output nobody reads."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        return subprocess.run(
            [sys.executable, "-m", *command], stdout=write_end, stderr=subprocess.PIPE, check=False, cwd=ROOT
        )
    finally:
        os.close(write_end)
