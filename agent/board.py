"""Abilities of a board for the agent, read from the system without lasting changes.

The agent will renice threads and set shares of cgroups (Lachesis, §4 and §5), and will measure the way to other
boards. So it needs cores that it can count, CAP_SYS_NICE, a cgroup (version 1 or 2) that it may write to, and a
network address.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from agent.osched.kernel.rights import can_raise_priority
from edgert.install_hint import lacking

CAP_SYS_NICE: Final = 23
"""Bit of the capability in the masks of /proc/self/status (linux/capability.h)."""
CONTROLLER: Final = "cpu"


@dataclass(frozen=True, slots=True)
class Processor:
    """The board's cores. Frequencies in MHz; None where the kernel tells none (most virtual machines)."""

    cores: int
    usable: int
    """Cores that this process may run on (a cpuset or taskset may leave fewer)."""
    current_mhz: float | None
    maximum_mhz: float | None


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of main memory."""

    total_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class Priority:
    """Result of setting a nice value below our own."""

    cap_sys_nice: bool
    can_raise: bool
    """Tried: the nice value of this thread was lowered by one, and set back."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The control group of this process. `version` 0: none is mounted."""

    version: int
    path: str
    writable: bool
    """A child group can be made in it."""
    has_cpu: bool
    """The cpu controller is offered to it."""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface that is up, and its addresses, loopback left out."""

    name: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """All that was found."""

    processor: Processor
    memory: Memory
    priority: Priority
    cgroup: Cgroup
    interfaces: tuple[Interface, ...]
    packages: str = ""
    """Python packages of the agent that are not installed, and the remedy; empty if all are."""

    def plain(self) -> dict[str, Any]:
        """Returns the board as JSON types only, with what is missing."""
        return {**asdict(self), "missing": missing(self)}


def look(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> Board:
    """Read this board. `proc` and `sys` stand for /proc and /sys."""
    frequency: Any = psutil.cpu_freq()  # None where the kernel tells none, whatever the stubs say
    memory = psutil.virtual_memory()
    return Board(
        Processor(
            cores=psutil.cpu_count() or 1,
            usable=len(os.sched_getaffinity(0)),
            current_mhz=round(frequency.current, 1) if frequency else None,
            maximum_mhz=(frequency.max or None) if frequency else None,
        ),
        Memory(memory.total, memory.available),
        Priority(has_capability((proc / "self/status").read_text(), CAP_SYS_NICE), can_raise_priority()),
        find_cgroup((proc / "self/cgroup").read_text(), sys / "fs/cgroup"),
        tuple(interfaces()),
        lacking("agent") or "",
    )


def missing(board: Board) -> list[str]:
    """Abilities that the agent needs and this board lacks, each with a remedy."""
    cgroup = board.cgroup
    lacks: Mapping[str, bool] = {
        "permission to raise priorities: give CAP_SYS_NICE (systemd: AmbientCapabilities=CAP_SYS_NICE)": not (
            board.priority.cap_sys_nice and board.priority.can_raise
        ),
        "control groups: mount cgroup2 at /sys/fs/cgroup": cgroup.version == 0,
        "a cgroup that it may write to: delegate one (systemd: Delegate=cpu)": cgroup.version > 0
        and not cgroup.writable,
        "the cpu controller in its cgroup: delegate it (systemd: Delegate=cpu)": cgroup.version > 0
        and not cgroup.has_cpu,
        "a network address beside loopback: connect the board": not board.interfaces,
        f"Python packages: {board.packages}": bool(board.packages),
    }
    return [text for text, lacking in lacks.items() if lacking]


def has_capability(status: str, bit: int) -> bool:
    """True if the effective set in the text of /proc/self/status has the capability of number `bit`."""
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> bit & 1)
    return False


def find_cgroup(membership: str, root: Path, writable: Callable[[Path], bool] | None = None) -> Cgroup:
    """The group that `membership` (the text of /proc/self/cgroup) names, under the mount point `root`.

    A line `0::/path` is version 2. Only where version 2 is the whole hierarchy do its controllers count for us.
    """
    may_write = writable or (lambda folder: os.access(folder, os.W_OK))
    lines = [line.split(":", 2) for line in membership.splitlines() if line.count(":") >= 2]
    unified = next((path for number, _, path in lines if number == "0"), None)
    if unified is not None and (root / "cgroup.controllers").exists():
        folder = root / unified.lstrip("/")
        if not folder.exists():  # in a container the path may be that of the host
            folder = root
        offered = _text(folder / "cgroup.controllers").split()
        # Children get what `subtree_control` says; the group's owner writes there and makes them.
        delegated = may_write(folder) and may_write(folder / "cgroup.subtree_control")
        return Cgroup(2, str(folder), delegated, CONTROLLER in offered)
    for _, controllers, path in lines:
        if CONTROLLER in controllers.split(","):
            folder = root / controllers / path.lstrip("/")
            return Cgroup(1, str(folder), folder.exists() and may_write(folder), True)
    return Cgroup(0, "", False, False)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def interfaces() -> Iterator[Interface]:
    """Interfaces that are up and have an address other than loopback and link-local ones; by name."""
    try:
        found = by_netlink()
    except (ImportError, OSError):  # pyroute2 comes with the extra `agent`; a sandbox may forbid netlink
        found = by_psutil()
    for name in sorted(found):
        addresses = tuple(sorted(a for a in found[name] if not a.startswith(("127.", "::1", "169.254.", "fe80:"))))
        if addresses:
            yield Interface(name, addresses)


def by_netlink() -> dict[str, list[str]]:
    from pyroute2 import IPRoute

    with IPRoute() as route:
        names = {link["index"]: link.get_attr("IFLA_IFNAME") for link in route.get_links() if link["state"] == "up"}
        found: dict[str, list[str]] = {}
        for address in route.get_addr():
            if address["index"] in names:
                found.setdefault(names[address["index"]], []).append(address.get_attr("IFA_ADDRESS"))
        return found


def by_psutil() -> dict[str, list[str]]:
    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    families = (socket.AF_INET, socket.AF_INET6)
    return {
        name: [a.address.partition("%")[0] for a in addresses if a.family in families]
        for name, addresses in psutil.net_if_addrs().items()
        if name in up
    }
