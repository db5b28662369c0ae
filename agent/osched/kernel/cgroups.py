"""The agent's control groups: version 1 (`cpu.shares`) or version 2 (`cpu.weight`, threaded mode), found at run time.

<the agent's own group>/edgert-sched-<pid>/            the root group: all threads that are scheduled
<the agent's own group>/edgert-sched-<pid>/<group>/    a group of a grouping schedule

The agent's process id is in the name, as several agents may be in one group (started by hand, or in containers): none
empties and removes the groups of another one.
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.drivers.entities import Thread
from agent.drivers.procfs import ProcFs
from agent.osched.kernel.group_files import Files, v1_files, v2_files

ROOT: Final = "edgert-sched"
_MADE: Final = re.compile(rf"{ROOT}(-\d+)?")
LONGEST: Final = 100
"""Characters of a query's name in the name of its folder."""


@dataclass(frozen=True, slots=True)
class Cgroups:
    """A hierarchy with the cpu controller, and the folder in which the agent may make groups."""

    version: int
    mount: Path
    parent: Path
    proc: ProcFs = ProcFs()
    root_name: str = ROOT

    @property
    def root(self) -> Path:
        return self.parent / self.root_name

    @property
    def files(self) -> Files:
        return v1_files if self.version == 1 else v2_files

    def is_group(self, folder: Path) -> bool:
        """True if the path names a group of this hierarchy."""
        return self.mount in (folder, *folder.parents) and ".." not in folder.parts

    def is_made(self, folder: Path) -> bool:
        """True if the path names a group such as this agent, or one before it, makes."""
        return self.is_group(folder) and any(
            _MADE.fullmatch(name) for name in folder.relative_to(self.mount).parts[-2:]
        )

    def folder(self, group: str) -> Path:
        """The folder of a group; the root group for an empty name."""
        return self.root / folder_name(group) if group else self.root

    def group_of(self, thread: Thread) -> Path | None:
        """The folder of the group that a thread is in; None if it is gone."""
        path = cpu_path(self.proc.cgroups(thread.pid, thread.tid), self.version)
        return None if path is None else self.mount / path.lstrip("/")

    def make(self, folder: Path) -> None:
        """Make a group; one that is there stays. Raises `OSError`."""
        folder.mkdir(exist_ok=True)
        if self.version == 2:
            self._offer_cpu(folder)

    def _offer_cpu(self, folder: Path) -> None:
        """Version 2: have the parent hand the cpu controller on, and make groups within the root group threaded.

        A parent that holds processes itself (the agent's) thereby becomes the root of a threaded tree, in which the
        root group must be threaded, too.
        """
        control, kind = folder.parent / "cgroup.subtree_control", folder / "cgroup.type"
        if "cpu" not in control.read_text().split():
            control.write_text("+cpu")
        if kind.read_text().strip() == "domain invalid" or (folder != self.root and "threaded" not in kind.read_text()):
            kind.write_text("threaded")

    def put(self, folder: Path, files: dict[str, str]) -> None:
        """Write a group's files; those that the kernel does not offer are left out. Raises `OSError`."""
        for name, text in files.items():
            file = folder / name
            if file.exists():
                file.write_text(text)

    def move(self, thread: Thread, folder: Path) -> None:
        """Put a thread into a group. Raises `OSError`.

        Version 2 moves single threads only within a threaded domain: the process enters the root group first.
        """
        if self.version == 1:
            (folder / "tasks").write_text(str(thread.tid))
            return
        here = self.group_of(thread)
        inside = here is not None and self.root in (here, *here.parents)
        if not inside:
            (self.root / "cgroup.procs").write_text(str(thread.pid))
        if folder != (here if inside else self.root):
            (folder / "cgroup.threads").write_text(str(thread.tid))

    def move_back(self, thread: Thread, folder: Path) -> None:
        """Put a thread into the group that it came from; version 2 takes its whole process. Raises `OSError`."""
        if self.version == 1:
            (folder / "tasks").write_text(str(thread.tid))
        else:
            (folder / "cgroup.procs").write_text(str(thread.pid))

    def empty(self, folder: Path) -> None:
        """Send all threads in a group to the parent of the root group. Raises `OSError`."""
        for tid in self.members(folder):
            with contextlib.suppress(ProcessLookupError):
                self.move_back(Thread(tid, tid, 0), self.parent)

    def members(self, folder: Path) -> list[int]:
        """Thread ids in a group; empty if it is gone."""
        try:
            text = (folder / ("tasks" if self.version == 1 else "cgroup.threads")).read_text()
        except OSError:
            return []
        return [int(line) for line in text.split()]


def folder_name(group: str) -> str:
    """Name of the folder of a group. One that an engine's query cannot have as it is (other characters, too long, that
    of a file of the kernel's) gets a check sum, so that two names do not meet
    in one folder."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", group)[:LONGEST]
    return plain if plain == group and group != "tasks" else f"{plain}-{zlib.crc32(group.encode(errors='replace')):08x}"


def cpu_path(text: str, version: int) -> str | None:
    """The path in /proc/<pid>/cgroup of the hierarchy with the cpu controller."""
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        if version == 1 and "cpu" in controllers.split(","):
            return path
        if version == 2 and number == "0":
            return path
    return None


def find(proc: ProcFs = ProcFs()) -> Cgroups | None:  # noqa: B008 - it is frozen
    """The hierarchy with the cpu controller; None if there is none, or the agent may not make groups there."""
    mounts = [line.split() for line in (proc.root / "self/mountinfo").read_text().splitlines()]
    text = proc.cgroups(os.getpid())
    for fields in mounts:
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        version = 1 if kind == "cgroup" and "cpu" in options else 2 if kind == "cgroup2" else 0
        path = cpu_path(text, version) if version else None
        if path is None:
            continue
        mount = Path(fields[4])
        parent = mount / path.lstrip("/")
        has_cpu = version == 1 or "cpu" in _words(parent / "cgroup.controllers")
        if has_cpu and os.access(parent, os.W_OK):
            return Cgroups(version, mount, parent, proc, f"{ROOT}-{os.getpid()}")
    return None


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
