"""A factory reset by a file on a stick: power cuts between its steps, and sticks that cannot be written."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from edgert.boards import reset
from edgert.core.errors import EdgertError
from images.build import CLOSED
from provisioning import on_board
from provisioning.on_board import ERRORS, FILE, PENDING, RESET_FILE, main


class PowerCut(BaseException):
    """Ends the program; nothing that it would do afterwards happens."""


class Here:
    """A board: `/var` with an old fleet's file, a card, a stick, and the programs that it calls."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.var, self.stick, self.card = folder / "var", folder / "stick", folder / "card"
        self.resets = 0
        self.restarts = list[tuple[str, ...]]()
        stored = self.var / "edgert"
        for made in (stored, self.stick, self.card, folder / "mounted"):
            made.mkdir(parents=True)
        (stored / "gateway.toml").write_text('[gateway]\nid = "old"\n')
        (folder / "unprovisioned.toml").write_text(CLOSED)
        (self.stick / RESET_FILE).touch()
        (self.stick / FILE).write_text('[gateway]\nid = "new"\n')
        for name in ("sync", "fsync"):  # of this machine, whose disk may be busy
            monkeypatch.setattr(os, name, lambda *_: None)
        monkeypatch.setattr(subprocess, "run", self._run)
        monkeypatch.setattr(reset, "MARK", self.var / "factory-reset")
        for name, value in (
            ("MOUNTED", folder / "mounted"), ("STORED", stored), ("UNTOLD", folder / "unprovisioned.toml"),
            ("_grow", lambda: None), ("_apply", lambda _: None), ("own_name", lambda: "board"),
        ):  # fmt: skip
            monkeypatch.setattr(on_board, name, value)

    def _run(self, command: Sequence[Any], **_: object) -> subprocess.CompletedProcess[str]:
        """A partition is mounted by a link to its folder."""
        name, *rest = command
        mounted, told = on_board.MOUNTED, ""
        if name == "blkid":
            told = f"{self.card}\n{self.stick}\n"
        elif name == "mount":
            mounted.rmdir()
            mounted.symlink_to(rest[-2])
        elif name == "umount":
            mounted.unlink()
            mounted.mkdir()
        else:
            self.restarts.append((name, *rest))
        return subprocess.CompletedProcess(command, 0, told)

    def start(self) -> bool:
        """The first script, then the program: whether the board restarts."""
        if reset.MARK.exists():
            self.resets += 1
            shutil.rmtree(self.var)
            (self.var / "edgert").mkdir(parents=True)
        if on_board.MOUNTED.is_symlink():  # the power was cut while it was mounted
            on_board.MOUNTED.unlink()
            on_board.MOUNTED.mkdir()
        before = len(self.restarts)
        main()
        return len(self.restarts) > before

    def starts(self) -> None:
        """Until it runs."""
        for _ in range(5):
            if not self.start():
                return
        raise AssertionError("the board restarts for ever")

    @property
    def gateway(self) -> str:
        return (self.var / "edgert/gateway.toml").read_text()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(tmp_path, monkeypatch)


def test_a_stick_resets_the_board_once_and_the_file_beside_it_is_taken_afterwards(here: Here) -> None:
    (here.card / FILE).write_text('[gateway]\nid = "card"\n')  # not lost with the data of before the reset
    assert here.start()
    assert here.restarts == [("systemctl", "--force", "reboot")]
    assert (here.stick / FILE).exists()
    assert (here.card / FILE).exists()
    assert 'id = "old"' in here.gateway
    assert not here.start()
    assert 'id = "new"' in here.gateway
    assert not list(here.stick.iterdir())
    assert not here.start()
    assert here.resets == 1


def test_without_a_file_beside_it_the_board_is_as_a_new_one(here: Here) -> None:
    (here.stick / FILE).unlink()
    here.starts()
    assert 'id = "board"' in here.gateway
    assert here.resets == 1


def cut_at(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """The power is cut before the given one of all calls that change a disk or start a program."""
    calls = 0

    def cut(name: str) -> None:
        plain = getattr(os, name) if name != "run" else subprocess.run

        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == call:
                raise PowerCut
            return plain(*arguments, **options)

        monkeypatch.setattr(subprocess if name == "run" else os, name, counted)

    for name in ("open", "fsync", "replace", "unlink", "sync", "run"):
        cut(name)


def test_power_cuts_between_all_steps(tmp_path: Path) -> None:
    """Of three starts one is cut at one of its calls. The board is reset once, or twice, and runs with the new file."""
    resets = set()
    for start in range(3):
        for call in range(1, 100):
            with pytest.MonkeyPatch.context() as patch:
                here = Here(tmp_path / f"{start}-{call}", patch)
                for _ in range(start):
                    here.start()
                with pytest.MonkeyPatch.context() as power:
                    cut_at(power, call)
                    try:
                        here.start()
                    except PowerCut:
                        pass
                    else:
                        break
                here.starts()
                assert 'id = "new"' in here.gateway
                assert not list(here.stick.iterdir())
                assert not reset.MARK.exists()
                resets.add(here.resets)
        assert call > 3
    assert resets == {1, 2}


def test_a_stick_that_cannot_be_written_resets_nothing(
    here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unlink = Path.unlink

    def refuse(path: Path, **options: Any) -> None:
        if path.name == RESET_FILE:
            raise OSError(30, "Read-only file system")
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert not here.start()
    assert "cannot be removed" in capsys.readouterr().err
    assert not here.start()
    assert here.resets == 0


def test_a_file_that_windows_gave_a_second_ending_resets_the_board(here: Here) -> None:
    (here.stick / RESET_FILE).rename(here.stick / f"{RESET_FILE}.txt")
    here.starts()
    assert here.resets == 1
    assert not list(here.stick.iterdir())


def test_a_faulty_file_beside_it_resets_nothing(here: Here) -> None:
    """The board had neither its old settings nor the new ones."""
    (here.stick / FILE).write_text("[gateway\n")
    assert not here.start()
    assert 'id = "old"' in here.gateway
    assert sorted(path.name for path in here.stick.iterdir()) == [ERRORS, RESET_FILE, FILE]
    (here.stick / FILE).write_text('[gateway]\nid = "new"\n')
    here.starts()
    assert 'id = "new"' in here.gateway
    assert here.resets == 1


def test_while_an_update_is_on_trial_the_reset_waits_and_what_lies_beside_it(here: Here) -> None:
    """A slot whose gateway does not come up was confirmed, as the note of its trial was gone."""
    note = here.var / "edgert" / PENDING
    note.parent.mkdir()
    note.touch()
    assert not here.start()
    assert 'id = "old"' in here.gateway
    note.unlink()
    here.starts()
    assert 'id = "new"' in here.gateway
    assert here.resets == 1


def test_a_second_stick_that_cannot_be_written_takes_back_no_reset_of_the_first(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here.card / RESET_FILE).touch()
    refused, unlink = iter([False, True]), Path.unlink

    def refuse(path: Path, **options: Any) -> None:
        if path.name == RESET_FILE and next(refused, False):
            raise OSError(30, "Read-only file system")
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert here.start()
    assert reset.MARK.exists()
    assert not (here.card / RESET_FILE).exists()


def test_a_board_whose_data_cannot_be_written_goes_on(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name and network were not applied."""
    unlink = Path.unlink

    def refuse(path: Path, **options: Any) -> None:
        if path == reset.MARK:
            raise OSError(30, "Read-only file system")
        unlink(path, **options)

    def refused() -> None:
        raise EdgertError("Read-only file system")

    monkeypatch.setattr(reset, "order", refused)
    monkeypatch.setattr(Path, "unlink", refuse)
    assert not here.start()
