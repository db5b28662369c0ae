"""The power cut of a board in a container, with a real ext4: what was not synchronised is lost, all else is there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.containers.board import lose_power

PROGRAMS = ("mke2fs", "mount", "umount")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or any(shutil.which(name, path=PATH) is None for name in PROGRAMS),
        reason=f"needs root and {', '.join(PROGRAMS)}",
    ),
]


class Disk:
    """An ext4 in a file, mounted at `folder`."""

    def __init__(self, path: Path) -> None:
        self.image, self.folder = path / "disk", path / "data"
        self.folder.mkdir()
        self.image.touch()
        os.truncate(self.image, 32 << 20)
        self.run("mke2fs", "-q", "-t", "ext4", self.image)

    def mount(self) -> None:
        self.run("mount", "-o", "loop", self.image, self.folder)

    def unmount(self) -> None:
        self.run("umount", self.folder)

    @staticmethod
    def run(*command: str | Path) -> None:
        subprocess.run(command, check=True, capture_output=True, env={"PATH": PATH})


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    try:
        made.mount()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop devices here: {error.stderr}")
    yield made
    if made.folder.is_mount():
        made.unmount()


def test_what_was_not_synchronised_is_lost(disk: Disk) -> None:
    with (disk.folder / "kept").open("wb") as file:
        file.write(b"synchronised")
        file.flush()
        os.fsync(file.fileno())
    (disk.folder / "lost").write_bytes(b"in memory")
    lose_power(disk.folder)
    with pytest.raises(OSError, match="Input/output error"):
        (disk.folder / "later").write_bytes(b"x")
    disk.unmount()
    disk.mount()
    assert (disk.folder / "kept").read_bytes() == b"synchronised"
    assert not (disk.folder / "lost").exists()
