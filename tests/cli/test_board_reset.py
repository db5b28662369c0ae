"""`edgert board reset`: says what is lost, marks the data, restarts the board."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgert.boards import reset
from edgert.cli.board import verb
from edgert.cli.main import main
from edgert.core.errors import EdgertError
from tests.cli.board_rig import Board, board_in
from tests.status_example import example_status


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    found = board_in(tmp_path, monkeypatch)
    monkeypatch.setattr(verb, "ask", lambda *_: example_status())
    return found


def test_without_yes_the_command_says_what_would_be_lost(here: Board, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "reset"]) == 1
    said = capsys.readouterr().err
    assert "would be removed" in said
    assert "Flows: 1; rows of results that were not delivered: 20." in said
    assert "Slot A stays" in said
    assert not reset.MARK.exists()
    assert not here.calls("systemctl reboot")


def test_a_gateway_that_does_not_answer_is_no_obstacle(
    here: Board, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise EdgertError("no gateway at /run/edgert/control.sock")

    monkeypatch.setattr(verb, "ask", refuse)
    assert main(["board", "reset"]) == 1
    assert "is not known: no gateway at" in capsys.readouterr().err
    assert main(["board", "reset", "--yes"]) == 0
    assert reset.MARK.exists()


def test_the_board_is_marked_before_it_restarts(here: Board) -> None:
    here.program("systemctl", f'[ -e "{reset.MARK}" ] || exit 1')
    assert main(["board", "reset", "--yes"]) == 0
    assert here.calls("systemctl reboot")


def test_a_slot_on_trial_is_decided_before(here: Board, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "update", "--no-restart", "good.raucb"]) == 0
    assert main(["board", "reset", "--yes"]) == 1
    assert "version 2 in slot B is not decided" in capsys.readouterr().err
    assert not reset.MARK.exists()


def test_a_machine_without_slots_is_left_alone(here: Board, tmp_path: Path) -> None:
    (tmp_path / "cmdline").write_text("quiet\n")
    assert main(["board", "reset", "--yes"]) == 1
    assert not reset.MARK.exists()
