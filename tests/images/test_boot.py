"""The boot test's own parts, without QEMU: which scenes it plays, and how a kept board goes on."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from images.boot import SCENES, _scenes
from images.qemu.machine import FIRST_S, BootError, Machine


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
