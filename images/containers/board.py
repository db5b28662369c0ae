"""A board in a container: the image's root file system, read-only, with data and a network device of its own.

Its kernel is this machine's: boot loader, slots and updates are not tried in it. To be used after `enter`: no network
device, mount or process stays when the program ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeVar

from images.programs import run
from images.qemu.machine import BootError

BRIDGE: Final = "boards"
CGROUPS: Final = Path("/sys/fs/cgroup")
INSIDE: Final = "EDGERT_INSIDE"
NEEDED: Final = {
    "systemd-nspawn": "systemd-container", "unshare": "util-linux", "ip": "iproute2", "ssh": "openssh-client",
}  # fmt: skip
QUIET: Final = ("--quiet", "--register=no", "--keep-unit", "--resolv-conf=off", "--timezone=off", "--link-journal=no")
TAKE: Final = (
    "from pathlib import Path; from provisioning.on_board import take_untrusted; "
    "assert take_untrusted(Path('/mnt'), Path('/var/edgert'))"
)
"""The first boot does so with a FAT partition, which a container does not have."""
CONFIRM: Final = "systemd.mask=edgert-confirm.service"
"""Masks a unit that would restart a board without slots."""
PATH: Final = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
WAIT_S: Final = 600.0
"""The fleet forgets no board that died less than three minutes ago."""

SHUTDOWN, WITHOUT_LOG = 0x8004587D, 2
"""The kernel's EXT4_IOC_SHUTDOWN: the file system writes nothing from now on, its journal included."""

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
    run("mount", "--make-rshared", "/")  # boards hold what was mounted when they started: they are to lose it, too
    run("mount", "-t", "cgroup2", "none", CGROUPS)  # a machine may have the older kind there
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "link", "set", BRIDGE, "up")


def mounted(images: Path, folder: Path, ending: ExitStack) -> Path:
    """The root file system of an image, until `ending`."""
    root = folder / "root"
    root.mkdir()
    run("mount", "-o", "loop,ro", images / "root.ext4", root)
    ending.callback(run, "umount", root)
    return root


def lose_power(folder: Path) -> None:
    """Makes an ext4 lose all that is not on its disk, as by a power cut. It can then be unmounted only."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.ioctl(opened, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
    finally:
        os.close(opened)


def wait(look: Callable[[], T], what: str, within_s: float = WAIT_S) -> T:
    """Waits for something true, and returns it. Raises `BootError`."""
    ends = time.monotonic() + within_s
    while not (found := look()):
        if time.monotonic() > ends:
            raise BootError(f"waited {within_s:.0f} s for {what}")
        time.sleep(0.5)
    return found


class Board:
    """One container: the root file system at `root`, which all boards share, with data in `folder`."""

    def __init__(self, name: str, address: str, root: Path, data: Path, folder: Path) -> None:
        """`data` is the file system of data of the image; the board has a copy."""
        self.name, self.address, self._root = name, address, root
        self._var, self._disk, self.log = (folder / f"{name}.{kind}" for kind in ("var", "ext4", "log"))
        self._device = f"to-{name}"
        self._cgroup = CGROUPS / f"edgert-{os.stat('/proc/self/ns/pid').st_ino}-{name}"
        self._process: subprocess.Popen[bytes] | None = None
        self._var.mkdir()
        run("cp", "--sparse=always", data, self._disk)

    def provision(self, boot: Path) -> None:
        """Takes the provisioning file of folder `boot`, which stands for the FAT partition of its card."""
        command = [
            *self._nspawn(), f"--bind={boot}:/mnt", "--setenv=PYTHONPATH=/opt/edgert/lib", "--as-pid2",
            "/usr/bin/python3", "-P", "-c", TAKE,
        ]  # fmt: skip
        self._mount()
        run(*command)
        run("umount", self._var)

    def _mount(self) -> None:
        """Mounts file systems as the board's first script does."""
        found = subprocess.run(["/sbin/e2fsck", "-p", self._disk], capture_output=True, text=True, check=False)
        if found.returncode > 1:  # 1: mended
            raise BootError(f"the data of {self.name} are broken: {found.stdout}")
        run("mount", "-o", "loop,noatime", self._disk, self._var)

    def _nspawn(self) -> list[str]:
        where = (f"--directory={self._root}", f"--bind={self._var}:/var", "--tmpfs=/tmp", f"--machine={self.name}")
        return ["systemd-nspawn", *QUIET, "--read-only", *where]

    def start(self) -> None:
        wait(lambda: not _is_there(self._device), f"the end of {self.name}'s old network device")
        self._mount()
        self._cgroup.mkdir(exist_ok=True)
        boot = ["--boot", f"--network-veth-extra={self._device}:eth0", "--console=pipe", CONFIRM]
        inside = ["sh", "-c", f'echo $$ >{self._cgroup}/cgroup.procs; exec "$@"', "sh", *self._nspawn(), *boot]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(inside, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait(lambda: _is_there(self._device), f"{self.name}'s network device")
        run("ip", "link", "set", self._device, "master", BRIDGE, "up")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def cut(self) -> None:
        """Ends the board as a power cut does: all its processes end at once, and what was not on its disk by then is
        lost."""
        if self.running:
            wait(self._leader, f"{self.name}'s first process")
            os.kill(self._leader(), signal.SIGKILL)
        if self._process is not None and self._var.is_mount():
            lose_power(self._var)
            self._process.wait()
            run("umount", self._var)
            for group, _, _ in os.walk(self._cgroup, topdown=False):
                os.rmdir(group)

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
