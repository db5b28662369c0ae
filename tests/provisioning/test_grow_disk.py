"""A mounted data partition of a real (loop) disk grows to its end, with the programs that do it on a board."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioning.grow import grow, partition_of

START, SMALL_MIB, DISK_MIB = 2_048, 32, 256
PROGRAMS = ("losetup", "partx", "mke2fs", "resize2fs", "mount")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or any(shutil.which(name, path=PATH) is None for name in PROGRAMS),
        reason=f"needs root and {', '.join(PROGRAMS)}",
    ),
]


def run(*command: str | Path) -> str:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the one partition of a disk that has room behind it."""
    monkeypatch.setenv("PATH", PATH)
    image, folder = tmp_path / "disk", tmp_path / "data"
    folder.mkdir()
    entry = struct.pack("<4xB3xII", 0x83, START, SMALL_MIB * 2_048)
    with image.open("wb") as disk:
        disk.write(bytes(446) + entry.ljust(64, b"\0") + b"\x55\xaa")
        disk.truncate(DISK_MIB << 20)
    run("mke2fs", "-q", "-t", "ext4", "-b", "4096", "-E", f"offset={START * 512}", image, f"{SMALL_MIB}M")
    try:
        loop = run("losetup", "-f", "--show", image)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop devices here: {error.stderr}")
    device = Path(f"{loop}p1")
    made = False
    try:
        run("partx", "--add", loop)
        if not device.exists():
            made = True
            told = Path("/sys/class/block", device.name, "dev").read_text()
            os.mknod(device, 0o600 | 0o060000, os.makedev(*map(int, told.split(":"))))
        run("mount", device, folder)
        try:
            yield folder
        finally:
            run("umount", folder)
            run("e2fsck", "-fn", device)
            run("partx", "--delete", loop)
    finally:
        run("losetup", "-d", loop)
        if made:
            device.unlink(missing_ok=True)


def room_mib(folder: Path) -> int:
    told = os.statvfs(folder)
    return told.f_blocks * told.f_frsize >> 20


def may_resize() -> bool:
    """Whether the kernel lets us resize a mounted file system (CAP_SYS_RESOURCE): some containers' root may not."""
    told = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:"))
    return bool(int(told.split()[1], 16) >> 24 & 1)


def reaches_the_end(folder: Path) -> bool:
    found = partition_of(folder)
    return found is not None and found.start + found.size == DISK_MIB * 2_048


def test_it_grows_once_and_keeps_its_files(mounted: Path) -> None:
    (mounted / "file").write_text("of before")
    assert room_mib(mounted) < SMALL_MIB
    assert not reaches_the_end(mounted)
    if may_resize():
        assert grow(mounted)
        assert room_mib(mounted) > DISK_MIB * 0.8
        assert not grow(mounted)  # the next start
    else:
        with pytest.raises(OSError, match="Permission denied to resize"):
            grow(mounted)
    assert reaches_the_end(mounted)
    assert (mounted / "file").read_text() == "of before"
