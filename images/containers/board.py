"""A board in a container: the image's root file system, read-only, with data and a network device of its own.

Its kernel is this machine's: boot loader, slots and updates are not tried in it. To be used after `enter`: no network
device, mount or process stays when the program ends.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from images.programs import run
from images.qemu.machine import BootError

BRIDGE: Final = "boards"
CGROUPS: Final = Path("/sys/fs/cgroup")
INSIDE: Final = "EDGERT_INSIDE"
NEEDED: Final = {"systemd-nspawn": "systemd-container", "unshare": "util-linux", "ip": "iproute2"}
QUIET: Final = ("--quiet", "--register=no", "--keep-unit", "--resolv-conf=off", "--timezone=off", "--link-journal=no")
TAKE: Final = (
    "from pathlib import Path; from provisioning.on_board import take_untrusted; "
    "assert take_untrusted(Path('/mnt'), Path('/var/edgert'))"
)
"""The first boot does so with a FAT partition, which a container does not have."""
CONFIRM: Final = "systemd.mask=edgert-confirm.service"
"""It would restart a board without slots."""
PATH: Final = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
WAIT_S: Final = 600.0
"""The fleet forgets no board that died less than three minutes ago."""

T = TypeVar("T")


def enter(module: str, arguments: Sequence[str]) -> None:
    """Starts this program again in namespaces of its own, with a bridge in them; returns there."""
    if missing := sorted({package for name, package in NEEDED.items() if shutil.which(name) is None}):
        raise BootError(f"needs {' '.join(missing)}; as root: apt-get install {' '.join(missing)}")
    if os.geteuid() != 0:
        raise BootError("needs root, for mounts and containers")
    if INSIDE not in os.environ:
        own = ("--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
        command = ["unshare", *own, sys.executable, "-m", module, *arguments]
        os.execvpe("unshare", command, {**os.environ, INSIDE: "yes"})
    run("mount", "-t", "cgroup2", "none", CGROUPS)  # a machine may have the older kind there
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "link", "set", BRIDGE, "up")


def wait(look: Callable[[], T], what: str, within_s: float = WAIT_S) -> T:
    """Waits for something true, and returns it. Raises `BootError`."""
    ends = time.monotonic() + within_s
    while not (found := look()):
        if time.monotonic() > ends:
            raise BootError(f"waited {within_s:.0f} s for {what}")
        time.sleep(0.5)
    return found


class Board:
    """Of a root file system that is mounted at `root`; its data stay in `folder`."""

    def __init__(self, name: str, address: str, root: Path, data: Path, folder: Path) -> None:
        """`data` is a folder with the data of the image."""
        self.name, self.address, self._root = name, address, root
        self._var, self._log = folder / f"{name}.var", folder / f"{name}.log"
        self._device = f"to-{name}"
        self._cgroup = CGROUPS / f"edgert-{os.stat('/proc/self/ns/pid').st_ino}-{name}"
        self._process: subprocess.Popen[bytes] | None = None
        run("cp", "-a", data, self._var)

    def provision(self, boot: Path) -> None:
        """Takes the provisioning file of folder `boot`, which stands for the FAT partition of its card."""
        command = [
            *self._nspawn(), f"--bind={boot}:/mnt", "--setenv=PYTHONPATH=/opt/edgert/lib", "--as-pid2",
            "/usr/bin/python3", "-P", "-c", TAKE,
        ]  # fmt: skip
        run(*command)

    def _nspawn(self) -> list[str]:
        where = (f"--directory={self._root}", f"--bind={self._var}:/var", "--tmpfs=/tmp", f"--machine={self.name}")
        return ["systemd-nspawn", *QUIET, "--read-only", *where]

    def start(self) -> None:
        wait(lambda: not _is_there(self._device), f"the end of {self.name}'s old network device")
        self._cgroup.mkdir(exist_ok=True)
        boot = ["--boot", f"--network-veth-extra={self._device}:eth0", "--console=pipe", CONFIRM]
        inside = ["sh", "-c", f'echo $$ >{self._cgroup}/cgroup.procs; exec "$@"', "sh", *self._nspawn(), *boot]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(inside, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait(lambda: _is_there(self._device), f"{self.name}'s network device")
        run("ip", "link", "set", self._device, "master", BRIDGE, "up")

    def cut(self) -> None:
        """All its processes end at once. What they have written stays with this machine's kernel."""
        if self._process is not None and self._process.poll() is None:
            if leader := self._leader():
                os.kill(leader, 9)
            self._process.wait()
            for folder, _, _ in os.walk(self._cgroup, topdown=False):
                os.rmdir(folder)

    def _leader(self) -> int:
        """Its first process, as this machine numbers it; 0 before there is one."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return int((children.read_text().split() or ["0"])[0]) if children.exists() else 0

    def ask(self, *command: str) -> tuple[int, str]:
        """Exit status and output of a command on the board."""
        leader = self._leader()
        if not leader:
            return 1, "the board is off"
        inside = ["nsenter", "-t", str(leader), "-a", "env", "-i", PATH, *command]
        done = subprocess.run(inside, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def write(self, path: str, text: str) -> None:
        """A file below /var of the board."""
        (self._var / path).write_text(text)


def _is_there(device: str) -> bool:
    try:
        socket.if_nametoindex(device)
    except OSError:
        return False
    return True
