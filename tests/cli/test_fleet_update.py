"""Which boards `edgert fleet update` asks, and what it prints; a real broker and gateways: tests/integration."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from edgert.boards.board_state import BoardState, UpdateProgress
from edgert.boards.waves import SeenBoard, Waves
from edgert.cli.fleet import update
from edgert.cli.fleet.board_watch import BoardWatch
from edgert.cli.main import build_parser
from edgert.core.errors import EdgertError
from edgert.core.settings.connection import Connection

URL = "http://h/2.raucb"


@pytest.fixture
def watch() -> BoardWatch:
    return BoardWatch(Connection(), "farm", "token", lambda: None)


def hears(watch: BoardWatch, board: str, below: str, plain: Any) -> None:
    payload = plain if isinstance(plain, bytes) else json.dumps(plain).encode()
    watch.message_untrusted(f"edgert/v1/farm/{board}/{below}", payload, None)


def shows(watch: BoardWatch, board: str, state: BoardState, online: bool = True) -> None:
    hears(watch, board, "update/state", state.text().encode())
    hears(watch, board, "status", {"state": "online" if online else "offline"})


def boards(watch: BoardWatch, *arguments: str) -> tuple[list[str], dict[str, str]]:
    args = build_parser().parse_args(["fleet", "update", URL, "--fleet", "farm", *arguments])
    return update._boards(args, watch)


def test_boards_that_are_online_and_have_slots_take_part(watch: BoardWatch) -> None:
    shows(watch, "g2", BoardState("A", "1"))
    shows(watch, "g1", BoardState("A", "1"))
    shows(watch, "pi", BoardState("A", "1", "board pi4 always starts slot A"))
    shows(watch, "away", BoardState("A", "1"), online=False)
    shows(watch, "restarts", BoardState("A", "1", update=UpdateProgress("installed", url=URL)), online=False)
    shows(watch, "other", BoardState("A", "1", update=UpdateProgress("installed", url="http://h/3")), online=False)
    hears(watch, "laptop", "status", {"state": "online"})
    hears(watch, "gone", "status", {"state": "offline"})
    hears(watch, "@collector/c", "status", {"state": "online"})
    able, others = boards(watch)
    assert able == ["g1", "g2", "restarts"]
    assert others == {
        "pi": "board pi4 always starts slot A", "away": "is offline", "other": "is offline", "laptop": update.NO_STATE,
    }  # fmt: skip
    assert boards(watch, "--board", "g2", "--board", "g1", "--board", "g2") == (["g2", "g1"], {})


def test_a_named_board_that_cannot_take_part_is_an_error(watch: BoardWatch) -> None:
    shows(watch, "g1", BoardState("A", "1"))
    with pytest.raises(EdgertError, match=r"board g7 is offline; board g8 is offline; no board was asked"):
        boards(watch, "--board", "g1", "--board", "g7", "--board", "g8")


def test_without_a_board_it_is_said_what_there_is(watch: BoardWatch) -> None:
    with pytest.raises(EdgertError, match="none was seen"):
        boards(watch)
    hears(watch, "laptop", "status", {"state": "online"})
    with pytest.raises(EdgertError, match="laptop takes no updates"):
        boards(watch)


def test_answers(watch: BoardWatch) -> None:
    shows(watch, "g1", BoardState("A", "1"))
    hears(watch, "g1", "answers/token", {"error": "another update is under way"})
    assert watch.seen("g1") == SeenBoard(True, BoardState("A", "1"), "another update is under way")
    hears(watch, "g1", "answers/token", {"asked": True})
    assert watch.seen("g1") == SeenBoard(True, BoardState("A", "1"), taken=True)


@pytest.mark.parametrize("payload", [b"", b"\xff", b"[]", b"null", b"[" * 10_000, b'{"error": 5}', b"{}"])
def test_what_is_no_answer_is_a_refusal_and_no_state_is_no_state(watch: BoardWatch, payload: bytes) -> None:
    shows(watch, "g1", BoardState("A", "1"))
    hears(watch, "g1", "update/state", payload)
    hears(watch, "g1", "status", payload)
    hears(watch, "g1", "answers/token", payload)
    seen = watch.seen("g1")
    assert (seen.online, seen.state, seen.taken) == (False, BoardState("A", "1"), False)
    assert "expected an answer" in seen.refusal


def test_what_is_printed() -> None:
    rollout = Waves([["g1"], ["g2"]], "r", URL)
    said: list[str] = []
    says = update._Says(rollout, said.append)

    def turn(at_s: float, update: UpdateProgress | None) -> None:
        rollout.turn(
            at_s, {"g1": SeenBoard(True, BoardState("A", "1", "", update)), "g2": SeenBoard(True, BoardState("A", "1"))}
        )
        says.news()

    turn(0, None)
    for percent in (3, 10, 26, 30, 100):
        turn(1, UpdateProgress("installing", "2", "r", URL, percent))
    turn(2, UpdateProgress("failed", "2", "r", URL, None, "no space"))
    assert said == [
        "wave 1 of 2: g1", "  g1: asked", "  g1: installing 0 %", "  g1: installing 25 %", "  g1: installing 100 %",
        "  g1: failed: no space", "stopped after wave 1: 1 of 1 boards are not updated",
    ]  # fmt: skip
    assert list(update.lines(rollout, {"pi": "always starts slot A"})) == [
        "board  wave  result     why",
        "g1     1     failed     no space",
        "g2     2     left",
        "pi     -     not asked  always starts slot A",
        "stopped after wave 1: 1 of 1 boards are not updated; run the command again to go on",
    ]
    assert update.result(rollout, {})["boards"]["g1"] == {"result": "failed", "why": "no space", "version": "2"}


def test_boards_that_never_fall_silent_do_not_keep_the_update_from_beginning() -> None:
    """Another update is under way: its boards tell of each per cent."""

    class Noisy(threading.Event):
        now = 0.0

        def wait(self, timeout: float | None = None) -> bool:
            self.now += 0.4
            return True

    noisy = Noisy()
    update._until_quiet(noisy, lambda: noisy.now)
    assert update.CONNECT_S <= noisy.now < update.CONNECT_S + 1
