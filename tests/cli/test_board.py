"""`edgert board`, with the programs of a board (rauc, systemctl, journalctl) as scripts that note their calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgert.cli import _slots, board
from edgert.cli.main import main

RAUC = """
case $1 in
info) case $2$3 in *good*) echo '{"version": "2"}' ;; *) echo 'signature verification failed' >&2; exit 1 ;; esac ;;
install) case $2 in *full*) echo 'no space' >&2; exit 1 ;; esac ;;
esac
"""
SYSTEMCTL = """
[ "$1" = show ] || exit 0
printf 'Id=edgert-gateway.service\\nActiveState=active\\nNRestarts=%s\\nResult=success\\n' "$(cat "$BOARD/restarts")"
"""


class Board:
    """The files and programs of a board, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.notes = folder / "update"
        self.calls_file = folder / "calls"
        (folder / "restarts").write_text("0")

    def program(self, name: str, script: str) -> None:
        path = self._folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho {name} "$@" >>"{self.calls_file}"\nBOARD={self._folder}\n{script}')
        path.chmod(0o755)

    def runs(self, slot: str) -> None:
        (self._folder / "cmdline").write_text(f"quiet edgert.slot={slot}\n")

    def restarts(self, count: int) -> None:
        (self._folder / "restarts").write_text(str(count))

    def calls(self, name: str) -> list[str]:
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        return [line for line in lines if line.startswith(name)]

    def history(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.notes / "history.jsonl").read_text().splitlines()]

    @property
    def waits(self) -> bool:
        return (self.notes / "pending.json").exists()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    found = Board(tmp_path)
    for name, script in (("rauc", RAUC), ("systemctl", SYSTEMCTL), ("journalctl", "echo last words\n")):
        found.program(name, script)
    (tmp_path / "image.json").write_text('{"board": "virt", "version": "1", "updates": true}')
    monkeypatch.setattr(_slots, "COMMAND_LINE", tmp_path / "cmdline")
    monkeypatch.setattr(_slots, "NOTES", found.notes)
    monkeypatch.setattr(_slots, "IMAGE", tmp_path / "image.json")
    monkeypatch.setattr(_slots, "MARK_AGAIN_S", 0.0)
    monkeypatch.setattr(board, "POLL_S", 0.0)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    found.runs("A")
    status(monkeypatch, "good")
    return found


def status(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    """The gateway answers that a flow is so."""
    told = {"health": {"parts": [{"part": "flow", "name": "f", "level": level, "text": f"flow f is {level}"}]}}
    monkeypatch.setattr(board, "ask", lambda *_: told)


def test_an_update_is_noted_before_it_is_written_and_the_board_starts_again(here: Board) -> None:
    assert main(["board", "update", "good.raucb"]) == 0
    assert here.waits
    assert here.history()[-1] | {"time": ""} == {
        "time": "", "event": "installed", "version": "2", "slot": "B", "before": "1",
    }  # fmt: skip
    assert here.calls("systemctl reboot") == ["systemctl reboot"]


@pytest.mark.parametrize(
    ("bundle", "event", "why"),
    [("evil.raucb", "refused", "signature verification failed"), ("good-full", "failed", "no space")],
)
def test_a_bundle_that_is_not_installed_leaves_no_note(
    here: Board, bundle: str, event: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["board", "update", bundle]) == 1
    assert why in capsys.readouterr().err
    assert not here.waits
    assert here.history()[-1]["event"] == event
    assert not here.calls("systemctl reboot")


def test_one_update_at_a_time(here: Board, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "update", "--no-restart", "good.raucb"]) == 0
    assert main(["board", "update", "good.raucb"]) == 1
    assert "not confirmed yet" in capsys.readouterr().err
    assert len(here.calls("rauc install")) == 1


def test_a_start_without_an_update_gives_the_attempts_back(here: Board) -> None:
    assert main(["board", "confirm"]) == 0
    assert here.calls("rauc") == ["rauc status mark-good booted"]


def test_a_slot_that_is_well_is_confirmed(here: Board) -> None:
    main(["board", "update", "--no-restart", "good.raucb"])
    here.runs("B")
    assert main(["board", "confirm", "--steady", "0"]) == 0
    assert here.calls("rauc status") == ["rauc status mark-good booted"]
    assert here.history()[-1]["event"] == "confirmed"
    assert not here.waits


def test_a_slot_that_is_worse_goes_back_and_says_why(here: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    main(["board", "update", "--no-restart", "good.raucb"])
    here.runs("B")
    status(monkeypatch, "bad")
    assert main(["board", "confirm", "--within", "0"]) == 0
    assert here.calls("rauc status") == ["rauc status mark-bad booted"]
    assert here.history()[-1] | {"time": ""} == {
        "time": "", "event": "rolled back", "version": "2", "why": "flow f is bad", "log": "last words\n",
    }  # fmt: skip
    assert here.calls("systemctl reboot")
    assert not here.waits


def test_what_was_bad_before_is_not_held_against_an_update(here: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    status(monkeypatch, "bad")
    main(["board", "update", "--no-restart", "good.raucb"])
    here.runs("B")
    assert main(["board", "confirm", "--within", "0", "--steady", "0"]) == 0
    assert here.history()[-1]["event"] == "confirmed"


def test_a_service_that_is_started_again_and_again_is_not_waited_for(here: Board) -> None:
    main(["board", "update", "--no-restart", "good.raucb"])
    here.runs("B")
    here.restarts(5)
    assert main(["board", "confirm"]) == 0
    assert "edgert-gateway.service does not come up" in here.history()[-1]["why"]


def test_a_service_that_did_not_come_up_before_either_is_not_held_against_an_update(here: Board) -> None:
    here.restarts(5)
    main(["board", "update", "--no-restart", "good.raucb"])
    here.runs("B")
    assert main(["board", "confirm", "--steady", "0"]) == 0
    assert here.history()[-1]["event"] == "confirmed"


def test_a_slot_that_never_came_up(here: Board) -> None:
    main(["board", "update", "--no-restart", "good.raucb"])
    assert main(["board", "confirm"]) == 0
    assert here.calls("rauc status") == ["rauc status mark-good booted"]
    assert "did not come up" in here.history()[-1]["why"]
    assert not here.waits


def test_a_slot_that_cannot_be_confirmed_is_an_error_so_that_its_attempts_run_out(here: Board) -> None:
    main(["board", "update", "--no-restart", "good.raucb"])
    here.runs("B")
    here.program("rauc", "exit 1\n")
    assert main(["board", "confirm", "--steady", "0"]) == 1
    assert here.waits


def test_status(here: Board, capsys: pytest.CaptureFixture[str]) -> None:
    main(["board", "update", "--no-restart", "good.raucb"])
    capsys.readouterr()
    assert main(["board", "status"]) == 0
    said = capsys.readouterr().out
    assert "slot A, version 1" in said
    assert "on trial: version 2 in slot B" in said
    assert main(["board", "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pending"] == "2"


def test_a_board_that_always_starts_slot_a(here: Board, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "image.json").write_text('{"board": "pi4", "version": "1", "updates": false}')
    assert main(["board", "update", "good.raucb"]) == 1
    assert "writing its card anew" in capsys.readouterr().err


def test_a_machine_without_slots(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "status"]) == 1
    assert "expected a board with two slots" in capsys.readouterr().err
