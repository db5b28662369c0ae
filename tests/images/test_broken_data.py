"""The first script's part of broken data, on a real ext4: repaired by its backups, or made anew at the third start."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from images.initramfs import script_of_init

BUSYBOX: Final = """#!/bin/sh
PATH=$PATH:/usr/sbin:/sbin
case $1 in
mount) shift; exec mount -o loop "$@" ;;
*) exec "$@" ;;
esac
"""
SIZE: Final = 192 << 20
"""More than one group of blocks: the second has a backup of the superblock."""
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0 or not Path("/usr/sbin/mke2fs").exists(), reason="needs root and e2fsprogs"),
]


class Board:
    """A data partition with a file, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data, self.disk, self.var = folder, folder / "data", folder / "disk", folder / "root/var"
        (folder / "root/opt/edgert/var/lib").mkdir(parents=True)
        self.var.mkdir()
        self.said = folder / "said"
        tree = folder / "tree"
        (tree / "edgert").mkdir(parents=True)
        (tree / "edgert/gateway.toml").write_text("settings")
        (folder / "busybox").write_text(BUSYBOX)
        (folder / "busybox").chmod(0o755)
        self.disk.write_bytes(bytes(4 << 20))
        command: list[str] = [
            "/usr/sbin/mke2fs",
            "-q",
            "-t",
            "ext4",
            "-b",
            "4096",
            "-L",
            "edgert-data",
            "-d",
            str(tree),
            str(self.data),
        ]
        subprocess.run([*command, f"{SIZE >> 20}M"], check=True)

    def start(self) -> int:
        """The script's part; returns its exit status, 9 where the board starts again."""
        script = script_of_init()
        functions = script[script.index("mount_data() {") : script.index("reset_data() {")]
        lines = script.splitlines()
        at = next(number for number, line in enumerate(lines) if line.startswith("mount_data || renew_data"))
        text = "\n".join((
            f"say() {{ echo $* >>{self.said}; }}", 'again() { say "$*"; exit 9; }', 'in_root() { "$@"; }',
            f"data={self.data}", functions, *lines[at : at + 2],
        ))  # fmt: skip
        text = text.replace("/bin/busybox", f"{self.folder}/busybox").replace("/root/", f"{self.folder}/root/")
        text = text.replace("/dev/edgert/disk", str(self.disk))
        return subprocess.run(["sh", "-c", text], check=False, capture_output=True).returncode

    def off(self) -> None:
        if self.var.is_mount():
            subprocess.run(["umount", self.var], check=True)

    def damage(self, size: int) -> None:
        with self.data.open("r+b") as data:
            data.write(os.urandom(size))


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    made = Board(tmp_path)
    yield made
    made.off()


def test_a_broken_superblock_is_repaired_by_a_backup(board: Board) -> None:
    board.damage(4096)
    assert board.start() == 0
    assert (board.var / "edgert/gateway.toml").read_text() == "settings"
    assert "the data partition is damaged, and is repaired" in board.said.read_text()
    options = next(line for line in Path("/proc/mounts").read_text().splitlines() if str(board.var) in line)
    assert "errors=remount-ro" in options
    found = subprocess.run(
        ["blkid", "-o", "value", "-s", "LABEL", board.data], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "edgert-data"


def test_data_beyond_repair_are_made_anew_at_the_third_start(board: Board) -> None:
    board.damage(SIZE)
    assert [board.start(), board.start()] == [9, 9]
    assert "start 2 of 3 before it is made anew" in board.said.read_text()
    assert board.start() == 0
    assert (board.var / "lib").is_dir()
    assert '"event": "data lost"' in (board.var / "edgert/update/history.jsonl").read_text()
    board.off()
    assert board.start() == 0
    board.off()
    board.damage(SIZE)
    assert board.start() == 9  # it counts from the beginning


def test_a_fault_that_passes_loses_nothing(board: Board) -> None:
    whole = shutil.copy(board.data, board.folder / "whole")
    board.damage(SIZE)
    assert board.start() == 9
    shutil.copy(whole, board.data)
    assert board.start() == 0
    assert (board.var / "edgert/gateway.toml").read_text() == "settings"
    board.off()
    board.damage(SIZE)
    assert [board.start(), board.start()] == [9, 9]
