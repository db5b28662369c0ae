"""`edgert board`, with the programs of a board (rauc, systemctl, journalctl) as scripts that note their calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgert.boards.board_state import BoardState
from edgert.boards.requests import UpdateRequest
from edgert.cli.board import drain, slots, verb
from edgert.cli.main import main
from tests.cli.board_rig import GOOD, Board, board_in, status

NOT_THERE = """cat >&2 <<'END'
rauc-Message: 21:11:38.547: Remote URI detected, streaming bundle...
rauc-nbd-Message: 21:11:38.558: nbd server configuring for URL: http://h/none.raucb
rauc-nbd-Message: 21:11:38.562: request failed (not found)
Failed to stream bundle http://h/none.raucb: not found: unexpected HTTP error code 404
rauc-Message: 21:11:38.562: nbd server failed with: finish_request failed, shutting down
rauc-nbd-Message: 21:11:38.562: received http error 404
rauc-nbd-Message: 21:11:38.562: stopping the nbd server
rauc-nbd-Message: 21:11:38.564: failed to stop ndb server: Child process exited with code 1
END
exit 1
"""
"""What RAUC 1.13 says. Its nbd server is a process of its own, whose lines may come last."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    return board_in(tmp_path, monkeypatch)


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


def test_a_bundle_that_cannot_be_mounted_for_a_moment_is_tried_again(here: Board, tmp_path: Path) -> None:
    script = """[ "$1" = install ] || { echo '{"version": "2"}'; exit 0; }
[ ! -e "$BOARD/small" ] || { rm "$BOARD/small"; echo 'LastError: Failed to load dm table: too long' >&2; exit 1; }
"""
    here.program("rauc", script)
    (tmp_path / "small").touch()
    assert main(["board", "update", "--no-restart", "good.raucb"]) == 0
    assert here.events() == ["installed"]
    assert len(here.calls("rauc install")) == 2


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
        "time": "", "event": "rolled back", "version": "2", "why": "flow f is bad", "log": "panic\n",
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
    assert here.history()[-1]["event"] == "rolled back"
    assert here.history()[-1]["why"] == "slot B did not come up; slot A runs"
    assert not here.waits


def test_no_word_of_a_trial_or_of_a_way_back_while_the_slot_was_only_being_written(
    here: Board, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def cut(*_: Any) -> None:
        assert main(["board", "status"]) == 0
        said.append(capsys.readouterr().out)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "install", cut)
        assert main(["board", "update", "--no-restart", "good.raucb"]) == 130
    assert "  being written: version 2 to slot B" in said[0].splitlines()
    assert main(["board", "confirm"]) == 0
    assert here.history()[-1]["event"] == "failed"
    assert here.history()[-1]["why"] == "it was cut off while slot B was written; slot A runs"
    assert not here.waits


def test_a_bundle_that_is_not_there_is_told_by_the_answer_of_its_server(
    here: Board, capsys: pytest.CaptureFixture[str]
) -> None:
    here.program("rauc", NOT_THERE)
    assert main(["board", "update", "--no-restart", "http://h/none.raucb"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(
        "rauc info: Failed to stream bundle http://h/none.raucb: not found: unexpected HTTP error code 404"
    )


def test_a_slot_that_cannot_be_confirmed_is_an_error_so_that_its_attempts_run_out(here: Board) -> None:
    main(["board", "update", "--no-restart", "good.raucb"])
    here.runs("B")
    here.program("rauc", "exit 1\n")
    assert main(["board", "confirm", "--steady", "0"]) == 1
    assert here.waits


def test_a_flow_that_is_gone_is_a_fault(here: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {"health": {"parts": []}, "flows": [{"name": "counts"}]}
    monkeypatch.setattr(verb, "ask", lambda *_: told)
    main(["board", "update", "--no-restart", "good.raucb"])
    here.runs("B")
    told["flows"] = []
    assert main(["board", "confirm", "--within", "0"]) == 0
    assert here.history()[-1]["why"] == "flow counts is not there any more"


def test_a_board_that_always_starts_slot_a_tells_so(here: Board, tmp_path: Path) -> None:
    (tmp_path / "image.json").write_text('{"board": "pi4", "version": "1", "updates": false}')
    assert main(["board", "confirm"]) == 0
    assert here.told() == BoardState("A", "1", "board pi4 always starts slot A")


@pytest.mark.parametrize("verdict", ["good", "bad"])
def test_a_board_is_drained_for_its_restart_and_filled_when_it_is_decided(
    here: Board, monkeypatch: pytest.MonkeyPatch, verdict: str
) -> None:
    calls: list[str] = []

    def agent(verb: str) -> dict[str, Any]:
        calls.append(verb)
        return {"stays": {}}

    monkeypatch.setattr(drain, "_call", agent)
    here.ask(UpdateRequest("r1", GOOD.url, drain=True))
    assert main(["board", "requested"]) == 0
    assert calls == ["fleet.drain"]
    here.runs("B")
    status(monkeypatch, verdict)
    main(["board", "confirm", "--steady", "0", "--within", "0"])
    if verdict == "bad":
        assert calls == ["fleet.drain"]
        here.runs("A")
        main(["board", "confirm"])
    assert calls == ["fleet.drain", "fleet.fill"]
    main(["board", "confirm"])
    assert calls == ["fleet.drain", "fleet.fill"]


def test_a_board_without_an_agent_restarts_undrained(here: Board, capsys: pytest.CaptureFixture[str]) -> None:
    here.ask(UpdateRequest("r1", GOOD.url, drain=True))
    assert main(["board", "requested"]) == 0
    assert "this board is not drained" in capsys.readouterr().err
    assert here.calls("systemctl reboot")


def test_status(here: Board, capsys: pytest.CaptureFixture[str]) -> None:
    main(["board", "update", "--no-restart", "good.raucb"])
    capsys.readouterr()
    assert main(["board", "status"]) == 0
    said = capsys.readouterr().out
    assert "slot A, version 1" in said
    assert "installed: version 2 in slot B, which runs from the next start on" in said
    assert main(["board", "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pending"] == "2"


def test_a_board_that_always_starts_slot_a(here: Board, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "image.json").write_text('{"board": "pi4", "version": "1", "updates": false}')
    assert main(["board", "update", "good.raucb"]) == 1
    assert "writing its card anew" in capsys.readouterr().err


def test_a_machine_without_slots(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "status"]) == 1
    assert "expected a board with two slots" in capsys.readouterr().err
