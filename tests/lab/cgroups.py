"""Limits of CPU and memory for a group of processes, by control groups of version 1 or 2."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
PREFIX: Final = "edgert-lab"
PERIOD_US: Final = 100_000


def settings(version: int, cores: float, memory_mb: int) -> dict[str, dict[str, str]]:
    """Controller → file → value, for limits that are not 0. In version 2 all controllers share a folder, named ""."""
    quota, memory = str(int(cores * PERIOD_US)), str(memory_mb * 2**20)
    cpu1 = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": quota} if cores else {}
    cpu2 = {"cpu.max": f"{quota} {PERIOD_US}"} if cores else {}
    if version == 2:
        files = {**cpu2, **({"memory.max": memory} if memory_mb else {})}
        return {"": files} if files else {}
    found = {"cpu": cpu1, "memory": {"memory.limit_in_bytes": memory} if memory_mb else {}}
    return {controller: files for controller, files in found.items() if files}


class Group:
    """A control group of its own. Raises `OSError` where this process may make none."""

    def __init__(self, name: str, cores: float, memory_mb: int, root: Path = ROOT) -> None:
        self._folders: list[Path] = []
        version = 2 if (root / "cgroup.controllers").exists() else 1
        try:
            if version == 2:
                (root / "cgroup.subtree_control").write_text("+cpu +memory")
            for controller, files in settings(version, cores, memory_mb).items():
                folder = root / controller / f"{PREFIX}-{os.getpid()}-{name}"
                folder.mkdir()
                self._folders.append(folder)
                for file, value in files.items():
                    (folder / file).write_text(value)
        except OSError:
            self.close()
            raise

    def command(self, command: Sequence[str]) -> list[str]:
        """A command that is in the group from its first instruction on, and so is all that it starts."""
        enter = [f"echo $$ > {shlex.quote(str(folder / 'cgroup.procs'))}" for folder in self._folders]
        return ["sh", "-c", " && ".join([*enter, 'exec "$@"']), "sh", *command]

    def peak_mb(self) -> float:
        """The most memory that the group has had, MiB; files that the kernel could give up at once count, too."""
        return int(self._memory("memory.max_usage_in_bytes", "memory.peak")) / 2**20

    def kills(self) -> int:
        """Processes of the group that the kernel killed for want of memory."""
        lines = self._memory("memory.oom_control", "memory.events").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def _memory(self, *files: str) -> str:
        """The text of a file about memory, which each version of control groups has under another name."""
        return next((f / file).read_text() for f in self._folders for file in files if (f / file).exists())

    def close(self) -> None:
        """Removes the group, after its processes have ended."""
        for folder in self._folders:
            with contextlib.suppress(OSError):
                folder.rmdir()


def remove_left_behind(root: Path = ROOT) -> None:
    """Removes the empty groups of laboratories that were killed."""
    for folder in [*root.glob(f"{PREFIX}-*"), *root.glob(f"*/{PREFIX}-*")]:
        found = re.match(rf"{PREFIX}-(\d+)-", folder.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
