"""`edgert board` on request: updates that the gateway notes for root."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from edgert.boards.board_state import BoardState, UpdateProgress
from edgert.boards.requests import MOST_BYTES, UpdateRequest
from edgert.cli.board import requests, slots
from edgert.cli.main import main
from tests.cli.board_rig import GOOD, Board, board_in, status


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    return board_in(tmp_path, monkeypatch)


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
