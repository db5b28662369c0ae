"""A board's programs (rauc, systemctl, journalctl) as scripts that note their calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgert.boards import reset
from edgert.boards.board_state import BoardState, UpdateProgress, state_untrusted
from edgert.boards.requests import UpdateRequest
from edgert.cli.board import requests, slots, verb

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


def board_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    """A board that runs slot A, with a gateway that is well."""
    found = Board(tmp_path)
    for name, script in (("rauc", RAUC), ("systemctl", SYSTEMCTL), ("journalctl", "echo panic\n")):
        found.program(name, script)
    (tmp_path / "image.json").write_text('{"board": "virt", "version": "1", "updates": true}')
    monkeypatch.setattr(slots, "COMMAND_LINE", tmp_path / "cmdline")
    monkeypatch.setattr(slots, "NOTES", found.notes)
    monkeypatch.setattr(reset, "MARK", tmp_path / "factory-reset")
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


GOOD = UpdateRequest("r1", "http://h/good.raucb")
