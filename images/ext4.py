"""File systems whose bytes depend on their files and one time alone: two builds of a commit are the same."""

from __future__ import annotations

import os
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Final

from images.programs import SYSTEM_FOLDERS, BuildError, run

BLOCK: Final = 4096
INODE: Final = 256
SPARE_INODES: Final = 64
SPACE: Final = uuid.uuid5(uuid.NAMESPACE_URL, "https://edgert.invalid/images")


def settle(tree: Path, epoch: int) -> None:
    """No time in `tree` is later than `epoch` (seconds since 1970): those are of this build."""
    for path in [tree, *tree.rglob("*")]:
        if path.lstat().st_mtime > epoch:
            os.utime(path, (epoch, epoch), follow_symlinks=False)


def needed_mib(tree: Path) -> int:
    """Size of a file system without a journal that holds the files of `tree`, with 5 % to spare."""
    need = 0
    for path in tree.rglob("*"):
        size = path.lstat().st_size if path.is_file() or path.is_dir() else 0
        need += INODE + -(-size // BLOCK) * BLOCK
    return int(need * 1.05) // 2**20 + 8


def _count(tree: Path) -> int:
    return sum(1 for _ in tree.rglob("*"))


def write(tree: Path, image: Path, label: str, mib: int, epoch: int, *, journal: bool = True) -> None:
    """An ext4 file system with the files of `tree`, of `mib` MiB; its identity comes from the label.

    `journal`: for one that is written on the board.
    """
    settle(tree, epoch)
    image.unlink(missing_ok=True)
    named = str(uuid.uuid5(SPACE, label))
    env = {**os.environ, "E2FSPROGS_FAKE_TIME": str(epoch)}
    kind = ["-O", "has_journal"] if journal else ["-O", "^has_journal", "-N", str(_count(tree) + SPARE_INODES)]
    run("mke2fs", "-q", "-t", "ext4", "-b", str(BLOCK), *kind, "-L", label, "-m", "0", "-U", named,
        "-E", f"hash_seed={named}", "-d", tree, image, f"{mib}M", env=env)  # fmt: skip
    _times(tree, image, epoch, env)


def _times(tree: Path, image: Path, epoch: int, env: dict[str, str]) -> None:
    """mke2fs takes the times of the last read and of the last change of inode from this machine's files."""
    names = ["/", "/lost+found", *(f"/{path.relative_to(tree)}" for path in tree.rglob("*"))]
    orders = "".join(f'sif "{name}" {field} @{epoch}\n' for name in sorted(names) for field in ("atime", "ctime"))
    run("debugfs", "-w", "-f", "-", image, env=env, given=orders)


def change(image: Path, path: str, content: str) -> None:
    """Gives a file of an image new content; empty content removes the file. Raises `BuildError` if there is none."""
    orders = [f"rm {path}"]
    with tempfile.NamedTemporaryFile("w", prefix="edgert-content-") as given:
        if content:
            given.write(content)
            given.flush()
            orders.append(f"write {given.name} {path}")
        for order in orders:  # debugfs tells of a fault in words alone
            variables = {**os.environ, "PATH": f"{os.environ['PATH']}:{SYSTEM_FOLDERS}", "LC_ALL": "C"}
            done = subprocess.run(
                ["debugfs", "-w", "-R", order, image], capture_output=True, text=True, env=variables, check=False
            )
            said = [line for line in done.stderr.splitlines() if not line.startswith("debugfs ")]
            if done.returncode or said:
                raise BuildError(f"{image}: cannot change {path}: {'; '.join(said) or done.returncode}")
