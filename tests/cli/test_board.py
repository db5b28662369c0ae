"""`edgert board`, with the programs of a board (rauc, systemctl, journalctl) as scripts that note their calls."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from edgert.boards.board_state import BoardState, UpdateProgress, state_untrusted
from edgert.boards.requests import MOST_BYTES, UpdateRequest
from edgert.cli.board import drain, requests, slots, verb
from edgert.cli.main import main

RAUC = """
case $1 in
info) case $2$3 in *good*) echo '{"version": "2"}' ;; *) echo 'signature verification failed' >&2; exit 1 ;; esac ;;
install)
    case $2 in *full*) echo 'no space' >&2; exit 1 ;; esac
    echo '  0% Installing'; echo ' 60% Updating slots'; echo '100% Installing done.'
    [ ! -e "$BOARD/away" ] || { rm "$BOARD/away"; echo 'failed to read: server not responding' >&2; exit 1; } ;;
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
        self.request = folder / "update.request"
        self.slept: list[float] = []
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

    def events(self) -> list[str]:
        return [event["event"] for event in self.history()]

    def ask(self, request: UpdateRequest) -> None:
        """As the gateway does."""
        self.request.write_text(request.text())

    def told(self) -> BoardState:
        found = state_untrusted((self._folder / "told/state.json").read_bytes())
        assert found is not None
        return found

    def update(self) -> UpdateProgress:
        found = self.told().update
        assert found is not None
        return found

    @property
    def waits(self) -> bool:
        return (self.notes / "pending.json").exists()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    found = Board(tmp_path)
    for name, script in (("rauc", RAUC), ("systemctl", SYSTEMCTL), ("journalctl", "echo panic\n")):
        found.program(name, script)
    (tmp_path / "image.json").write_text('{"board": "virt", "version": "1", "updates": true}')
    monkeypatch.setattr(slots, "COMMAND_LINE", tmp_path / "cmdline")
    monkeypatch.setattr(slots, "NOTES", found.notes)
    monkeypatch.setattr(slots, "IMAGE", tmp_path / "image.json")
    monkeypatch.setattr(requests, "REQUEST", found.request)
    monkeypatch.setattr(requests, "STATE", tmp_path / "told/state.json")
    monkeypatch.setattr("edgert.cli.board.install.time.sleep", found.slept.append)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    found.runs("A")
    status(monkeypatch, "good")
    return found


def status(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    """The gateway answers that a flow is so."""
    told = {"health": {"parts": [{"part": "flow", "name": "f", "level": level, "text": f"flow f is {level}"}]}}
    monkeypatch.setattr(verb, "ask", lambda *_: told)


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
    assert "did not come up" in here.history()[-1]["why"]
    assert not here.waits


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


# -- on request

GOOD = UpdateRequest("r1", "http://h/good.raucb")


def test_without_a_request_nothing_happens(here: Board) -> None:
    assert main(["board", "requested"]) == 0
    assert not here.calls("rauc")


def test_a_request_is_carried_out_and_told_until_it_is_confirmed(here: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    percents: list[str] = []
    tell = requests.tell

    def noted(update: UpdateProgress | None) -> None:
        percents.append(str(update))
        tell(update)

    monkeypatch.setattr(requests, "tell", noted)
    here.ask(GOOD)
    assert main(["board", "requested"]) == 0
    assert percents[:4] == ["checking", "installing 0 %", "installing 60 %", "installing 100 %"]
    assert not here.request.exists()
    assert here.calls("rauc install") == ["rauc install http://h/good.raucb"]
    assert here.calls("systemctl reboot")
    assert here.told() == BoardState("A", "1", "", UpdateProgress("installed", "2", "r1", GOOD.url))
    here.runs("B")
    assert main(["board", "confirm", "--steady", "0"]) == 0
    assert here.update() == UpdateProgress("confirmed", "2", "r1", GOOD.url)
    assert here.told().slot == "B"
    assert here.events() == ["installed", "confirmed"]


def test_a_requested_update_that_is_worse_goes_back_and_tells_why(here: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    here.ask(GOOD)
    main(["board", "requested"])
    here.runs("B")
    status(monkeypatch, "bad")
    main(["board", "confirm", "--within", "0"])
    assert here.update() == UpdateProgress("rolled back", "2", "r1", GOOD.url, None, "flow f is bad")
    here.runs("A")
    status(monkeypatch, "good")
    main(["board", "confirm"])
    assert here.update().phase == "rolled back"


@pytest.mark.parametrize(
    ("url", "version", "why"),
    [("http://h/evil.raucb", "", "signature verification failed"), (GOOD.url, "3", "expected version 3 in")],
)
def test_a_request_for_what_the_board_does_not_take(here: Board, url: str, version: str, why: str) -> None:
    here.ask(UpdateRequest("r1", url, version))
    assert main(["board", "requested"]) == 0
    assert here.update().phase == "refused"
    assert why in here.update().why
    assert not here.calls("rauc install")
    assert not here.waits
    assert here.slept == []


def test_a_request_for_the_version_that_runs(here: Board, tmp_path: Path) -> None:
    (tmp_path / "image.json").write_text('{"board": "virt", "version": "2", "updates": true}')
    here.ask(GOOD)
    assert main(["board", "requested"]) == 0
    assert here.update() == UpdateProgress("current", "2", "r1", GOOD.url)
    assert not here.calls("rauc install")
    assert not here.calls("systemctl reboot")


def test_an_installation_that_was_cut_off_is_begun_again(here: Board, tmp_path: Path) -> None:
    (tmp_path / "away").touch()
    here.ask(GOOD)
    assert main(["board", "requested"]) == 0
    assert here.events() == ["interrupted", "installed"]
    assert here.slept == [30.0]
    assert len(here.calls("rauc install")) == 2


def test_attempts_come_to_an_end(here: Board) -> None:
    here.program("rauc", "echo 'server not responding' >&2; exit 1\n")
    here.ask(GOOD)
    assert main(["board", "requested"]) == 0
    assert here.events() == ["interrupted"] * 5 + ["failed"]
    assert here.slept == [30.0, 60.0, 120.0, 240.0]
    assert here.update().why == "5 attempts; the last: rauc info: server not responding"
    assert requests.accepted() is None


def test_a_power_cut_while_a_slot_is_written_counts_as_an_attempt(here: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*_: Any) -> None:
        raise KeyboardInterrupt

    for number in range(1, 6):
        with monkeypatch.context() as patch:
            patch.setattr(slots, "install", cut)
            if number == 1:
                here.ask(GOOD)
            assert main(["board", "requested"]) == 130
        assert here.waits
        assert main(["board", "confirm"]) == 0
        assert here.calls("systemctl start") == ["systemctl start --no-block edgert-update.service"] * number
        assert here.update().phase == "waiting"
        assert not here.waits
    assert main(["board", "requested"]) == 0
    assert here.events() == ["interrupted"] * 5 + ["failed"]
    assert main(["board", "confirm"]) == 0
    assert len(here.calls("systemctl start")) == 5


def test_a_power_cut_just_when_the_slot_was_written_is_no_attempt_more(
    here: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    here.ask(GOOD)
    with monkeypatch.context() as patch:
        patch.setattr(slots, "record", cut)
        assert main(["board", "requested"]) == 130
    here.runs("B")
    assert main(["board", "confirm", "--steady", "0"]) == 0
    assert here.events() == ["confirmed"]
    assert not here.calls("systemctl start")


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "large", "nonsense", "forged"])
def test_root_follows_no_link_and_believes_nothing_of_a_request(here: Board, tmp_path: Path, kind: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text(GOOD.text())
    forged = '{"id": "r1", "url": "--conf=/tmp/evil"}'
    if kind == "link":
        here.request.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(here.request)
    elif kind == "folder":
        (here.request / "below").mkdir(parents=True)
    else:
        texts = {"large": GOOD.text() + " " * MOST_BYTES, "nonsense": "\0nonsense", "forged": forged}
        here.request.write_text(texts[kind])
    assert main(["board", "requested"]) == 0
    assert not here.calls("rauc")
    assert not os.path.lexists(here.request)
    assert secret.read_text() == GOOD.text()


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
