"""The scripts of boot loaders, and what a Raspberry Pi's firmware hands over to them."""

from __future__ import annotations

import base64
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from images.card import WATCHDOG, filled
from images.check import on_fat
from images.qemu.machine import Machine

BOARDS = sorted((Path(__file__).parents[2] / "images/boards").glob("*.toml"))
SCRIPTS = {"grub": "grub.cfg", "u-boot": "u-boot.txt"}
COMMAND_LINE_SIZE = 2048
"""Of an arm64 kernel."""


def card(board: str) -> dict[str, object]:
    [path] = [path for path in BOARDS if path.stem == board]
    spec: dict[str, object] = tomllib.loads(path.read_text())["card"]
    return spec


@pytest.mark.parametrize("board", [path.stem for path in BOARDS])
def test_no_field_of_a_script_is_left(board: str) -> None:
    spec = card(board)
    script = filled(SCRIPTS[str(spec["loader"])], str(spec["console"]), "1")
    assert "@" not in script
    assert f"console={spec['console']}" in script


def test_a_raspberry_pi_starts_u_boot_with_the_watchdog_on() -> None:
    """U-Boot starts the watchdog for this very word of cmdline.txt."""
    spec = card("pi4")
    assert {
        "boot.scr",
        "u-boot.bin",
        "uboot.env",
        "config.txt",
        "cmdline.txt",
        "bcm2837-rpi-3-b.dtb",
        "start4.elf",
    } <= on_fat(spec)
    files = spec["files"]
    assert isinstance(files, dict)
    assert "kernel=u-boot.bin" in files["config.txt"].splitlines()
    assert WATCHDOG in files["cmdline.txt"].split()
    assert f'"{WATCHDOG}"' in filled("u-boot.txt", str(spec["console"]))


def test_qemu_in_the_place_of_the_firmware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hands over the kernel's arguments of the test, without the watchdog that QEMU's Pi lets run out at once."""
    (tmp_path / "card.img").write_bytes(bytes(3000))
    copied: list[list[str]] = []

    def run(command: list[str], **_: object) -> None:
        copied.append(command)

    monkeypatch.setattr(subprocess, "run", run)
    arguments = Machine("pi4", tmp_path, tmp_path, "")._arguments
    assert (tmp_path / "card.img").stat().st_size == 4096
    assert [command[-2] for command in copied] == ["::u-boot.bin", "::bcm2837-rpi-3-b.dtb"]
    told = arguments[arguments.index("-append") + 1]
    assert len(told) < COMMAND_LINE_SIZE - 200
    assert WATCHDOG not in told.split()
    [unit] = [word.rsplit(":", 1)[1] for word in told.split() if "extra-unit" in word]
    [start] = [line for line in base64.b64decode(unit).decode().splitlines() if line.startswith("ExecStart=")]
    assert "exec 3<>/dev/ttyUSB0; stty raw -echo <&3; cat <&3 | /bin/sh >&3" in shlex.split(start)[-1]
