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
from images.qemu.disks import PATHS
from images.qemu.machine import DISKS, Machine

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


def test_a_pc_whose_firmware_is_uefi_finds_a_loader() -> None:
    """The card of a PC had one for a BIOS alone. UEFI takes the file of this name from a disk that is new to it."""
    assert "EFI/BOOT/BOOTX64.EFI" in on_fat(card("amd64"))


def test_a_pc_has_the_driver_of_each_disk_that_the_boot_test_plugs() -> None:
    """Its first script had those of virtio alone."""
    [path] = [path for path in BOARDS if path.stem == "amd64"]
    drivers = {"virtio": {"virtio_blk"}, "sata": {"ahci", "sd_mod"}, "nvme": {"nvme"}}
    drivers["usb"] = {"xhci_pci", "usb_storage", "sd_mod"}
    assert drivers.keys() == DISKS.keys() == PATHS.keys()
    assert set().union(*drivers.values()) <= set(tomllib.loads(path.read_text())["modules"])


def test_a_raspberry_pi_4_has_the_drivers_of_a_disk_on_usb() -> None:
    """Its first script had those of the card alone. The firmware's reset comes before the controller."""
    [path] = [path for path in BOARDS if path.stem == "pi4"]
    modules = tomllib.loads(path.read_text())["modules"]
    assert {"usb_storage", "uas", "sd_mod"} <= set(modules)
    assert modules.index("reset_raspberrypi") < modules.index("xhci_pci")


def test_grub_takes_the_disk_that_it_was_started_from() -> None:
    """A PC may have others, and a name of one disk in the script means the first."""
    lines = filled("grub.cfg", "ttyS0", "1").splitlines()
    assert [line.strip() for line in lines if "hd0" in line] == ["set disk=hd0"]
    assert not [line for line in lines if "msdos" in line and "($disk,msdos" not in line]


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
    arguments = Machine("pi4", tmp_path, tmp_path, "").arguments
    assert (tmp_path / "card.img").stat().st_size == 4096
    assert [command[-2] for command in copied] == ["::u-boot.bin", "::bcm2837-rpi-3-b.dtb"]
    told = arguments[arguments.index("-append") + 1]
    assert len(told) < COMMAND_LINE_SIZE - 200
    assert WATCHDOG not in told.split()
    [unit] = [word.rsplit(":", 1)[1] for word in told.split() if "extra-unit" in word]
    [start] = [line for line in base64.b64decode(unit).decode().splitlines() if line.startswith("ExecStart=")]
    assert "exec 3<>/dev/ttyUSB0; stty raw -echo <&3; cat <&3 | /bin/sh >&3" in shlex.split(start)[-1]
