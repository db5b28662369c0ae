"""The data partition takes the rest of its card: an image is as small as its files, a card is larger.

It is the last of the at most four partitions of a master boot record, and its file system is ext4, which grows while it
is mounted. What is not so (a disk without partitions, as in QEMU) stays as it is.
"""

from __future__ import annotations

import os
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SECTOR: Final = 512
TABLE: Final = 446
ENTRY: Final = 16
SIGNATURE: Final = b"\x55\xaa"
WORTH_SECTORS: Final = 32 * 2**20 // SECTOR
"""Less than this is left as it is."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as the kernel sees it; places and sizes in sectors of 512 bytes."""

    device: Path
    disk: Path
    number: int
    start: int
    size: int
    disk_size: int


def grown(record: bytes, number: int, start: int, disk_size: int) -> tuple[bytes, int] | None:
    """The master boot record in which partition `number` reaches to the end of the disk, and its new size in sectors.

    None if there is little to gain, another partition lies behind it, or the record is not one that says `start`.
    """
    if len(record) != SECTOR or record[-2:] != SIGNATURE or not 1 <= number <= 4:
        return None
    at = TABLE + ENTRY * (number - 1) + 8
    first, size = struct.unpack_from("<II", record, at)
    firsts = [struct.unpack_from("<I", record, TABLE + ENTRY * other + 8)[0] for other in range(4)]
    new = min(disk_size - first, 2**32 - 1)  # the record counts in 32 bits: 2 TiB
    if first != start or max(firsts) != first or new < size + WORTH_SECTORS:
        return None
    return record[: at + 4] + struct.pack("<I", new) + record[at + 8 :], new


def partition_of(folder: Path, system: Path = Path("/sys")) -> Partition | None:
    """The partition that the file system of `folder` is on; None for one that is on no partition."""
    number = folder.stat().st_dev
    block = (system / "dev/block" / f"{os.major(number)}:{os.minor(number)}").resolve()
    if not (block / "partition").exists():
        return None
    told = {name: int((block / name).read_text()) for name in ("partition", "start", "size")}
    disk = block.parent
    return Partition(
        Path("/dev") / block.name, Path("/dev") / disk.name, told["partition"], told["start"], told["size"],
        int((disk / "size").read_text()),
    )  # fmt: skip


def grow(folder: Path) -> bool:
    """Lets the partition of `folder` and its file system reach to the end of the disk: whether there was room.

    After a power cut in the midst the next start ends it: the file system is asked to grow as long as it is smaller.
    """
    found = partition_of(folder)
    if found is None:
        return False
    with found.disk.open("rb") as disk:
        record = disk.read(SECTOR)
    larger = grown(record, found.number, found.start, found.disk_size)
    if larger is None:
        _resize(found.device)
        return False
    with found.disk.open("rb+", buffering=0) as disk:
        disk.write(larger[0])
        os.fsync(disk.fileno())
    subprocess.run(["partx", "--update", "--nr", str(found.number), found.disk], check=True)  # the kernel's idea of it
    _resize(found.device)
    return True


def _resize(device: Path) -> None:
    """Says nothing and does nothing if the file system is as large as its partition."""
    done = subprocess.run(["resize2fs", device], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"resize2fs {device}: {done.stderr.strip()}")
