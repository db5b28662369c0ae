"""The boot test's own parts, without QEMU: which scenes it plays, and how a kept board goes on."""

from __future__ import annotations

import argparse
import re
import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from images.qemu.__main__ import SCENES, _scenes
from images.qemu.machine import FIRST_S, BootError, Machine
from tests.waiting import DEADLINE_S


def test_scenes_are_chosen_by_name() -> None:
    assert _scenes("good,init") == ("good", "init")
    assert _scenes(",".join(SCENES)) == SCENES
    with pytest.raises(argparse.ArgumentTypeError, match=r"expected some of power,.*, got nothing"):
        _scenes("good,nothing")


def board(folder: Path) -> Machine:
    images = folder / "images"
    images.mkdir(exist_ok=True)
    (images / "card.img").write_bytes(b"new")
    return Machine("amd64", images, folder, "")


def test_a_kept_board_goes_on_with_its_card_and_its_time(tmp_path: Path) -> None:
    (tmp_path / "card.img").write_bytes(b"kept")
    minutes = [board(tmp_path).minute(), board(tmp_path).minute()]
    assert (tmp_path / "card.img").read_bytes() == b"kept"
    assert minutes == [FIRST_S, FIRST_S + 600]


def test_an_image_that_is_not_built_is_said(tmp_path: Path) -> None:
    with pytest.raises(BootError, match=r"expected .*card\.img: build the image first"):
        Machine("amd64", tmp_path, tmp_path, "")


class Shell:
    """A board's shell behind QEMU's socket. The first command restarts the board; others are answered with `here`."""

    def __init__(self, board: Machine, folder: Path) -> None:
        self.commands: list[str] = []
        self._log = board.log
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / "shell"))
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection = self._listening.accept()[0]
            with connection, connection.makefile("r") as lines:
                for line in lines:
                    if line.startswith("echo ready-"):
                        connection.sendall(line.removeprefix("echo ").encode())
                    else:
                        self._take(connection, line)

    def _take(self, connection: socket.socket, line: str) -> None:
        self.commands.append(line)
        if len(self.commands) == 1:
            with self._log.open("a") as log:
                log.write("edgert: starts slot B\n")
        else:
            [mark] = re.findall(r"done-\d+", line)
            connection.sendall(f"here\n{mark} 0\n".encode())


def test_a_board_that_starts_again_while_it_owes_an_answer_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection to QEMU outlives the restart: without a look at the boot loader's lines the answer never comes."""
    (tmp_path / "card.img").write_bytes(b"kept")
    probe = board(tmp_path)
    probe.look_s = 0.01
    monkeypatch.setattr(probe, "_process", SimpleNamespace(poll=lambda: None))
    shell = Shell(probe, tmp_path)
    assert probe.ask("echo here", within_s=DEADLINE_S) == (0, "here\n")
    assert len(shell.commands) == 2
