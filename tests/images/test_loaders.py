"""The script of U-Boot: commands that each board's U-Boot has, and, in QEMU, the attempts of slots."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from images import ext4
from images.card import Card
from images.debian import Archive
from images.layout import SECTOR, STATE_OFFSET, slots_untrusted, u_boot_state

IMAGES = Path(__file__).parents[2] / "images"
U_BOOT = Path("/usr/lib/u-boot/qemu_arm64/u-boot.bin")
TOOLS = ("qemu-system-aarch64", "genimage", "mkimage", "mke2fs", "mcopy")


def test_the_script_has_no_command_that_an_odroid_lacks() -> None:
    """Its U-Boot (odroid-c4_defconfig of 2025.01) leaves out setexpr, which may stand behind a condition."""
    lines = (IMAGES / "loaders/u-boot.txt").read_text().splitlines()
    assert not [line for line in lines if line.startswith("setexpr")]


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The card of `virt` with slots that have no kernel."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    work, out, empty = tmp_path / "work", tmp_path / "out", tmp_path / "empty"
    for folder in (work, out, empty):
        folder.mkdir()
    for name in ("root", "data"):
        ext4.write(empty, out / f"{name}.ext4", f"edgert-{name}", 16, 0)
    spec = tomllib.loads((IMAGES / "boards/virt.toml").read_text())
    Card(spec, Archive("arm64", tmp_path), work, out).write(work, work)
    return out / "card.img"


@pytest.mark.long  # U-Boot is emulated nine times
@pytest.mark.skipif(
    not U_BOOT.exists() or any(shutil.which(tool, path="/usr/bin:/usr/sbin") is None for tool in TOOLS),
    reason="needs U-Boot, QEMU and genimage (scripts/setup image-test)",
)
def test_attempts_are_counted_down_and_the_other_slot_comes(disk: Path) -> None:
    with disk.open("rb+") as card:
        card.seek(STATE_OFFSET)
        card.write(u_boot_state({"BOOT_ORDER": "B A", "BOOT_A_LEFT": "3", "BOOT_B_LEFT": "2"}))
    starts = [start(disk) for _ in range(9)]
    assert starts == [
        ("B", "3", "1"), ("B", "3", "0"), ("A", "2", "0"), ("A", "1", "0"), ("A", "0", "0"),
        ("", "3", "3"), ("B", "3", "2"), ("B", "3", "1"), ("B", "3", "0"),
    ]  # fmt: skip


def start(disk: Path) -> tuple[str, str, str]:
    """Until the script resets the machine: the slot that it started, and the attempts that are left to A and B."""
    said = subprocess.run(
        ["qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a72", "-bios", U_BOOT, "-nodefaults", "-no-reboot",
         "-display", "none", "-serial", "stdio", "-drive", f"file={disk},format=raw,if=virtio"],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True, timeout=600,
    ).stdout  # fmt: skip
    with disk.open("rb") as card:
        card.seek(STATE_OFFSET)
        state = slots_untrusted(card.read(SECTOR))
    slot = re.search(r"edgert: starts slot ([AB])", said)
    return slot[1] if slot else "", state["BOOT_A_LEFT"], state["BOOT_B_LEFT"]
