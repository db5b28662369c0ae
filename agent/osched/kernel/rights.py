"""Rights of this process over the scheduling of threads, found by trying."""

from __future__ import annotations

import os
from dataclasses import dataclass

from agent.osched.kernel import cpus, slices
from agent.osched.kernel.cgroups import Cgroups, find
from agent.osched.kernel.clusters import Clusters


@dataclass(frozen=True, slots=True)
class Abilities:
    """Abilities that the kernel and our rights give, found by trying."""

    nice: bool
    slice_ns: int | None
    """The kernel's own slice; None: slices cannot be set."""
    cgroups: Cgroups | None
    clusters: Clusters | None = None
    """Fast and slow cores; None: all are alike, or the kernel does not tell."""

    def lacks(self) -> list[str]:
        """Sentences about missing abilities: the reason, and what still works."""
        found = []
        if not self.nice:
            found.append(
                "nice and slices: the agent may not raise priorities, so it could not undo what it changes; give it "
                "CAP_SYS_NICE (systemd: AmbientCapabilities=CAP_SYS_NICE). Figures, dry-run and pool weights work"
            )
        elif self.slice_ns is None:
            found.append("slices: this kernel takes no slice for a normal thread (Linux 6.12 and newer do)")
        if self.cgroups is None:
            found.append("groups: no cgroup with the cpu controller that we may write to (systemd: Delegate=cpu)")
        return found


def abilities() -> Abilities:
    """Try what this process may do."""
    nice = can_raise_priority()
    return Abilities(nice, slices.usual_ns() if nice else None, find(), cpus.find())


def can_raise_priority() -> bool:
    """Try it on this thread and take it back: a capability alone is no proof, since a container may filter the call."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, before - 1)
    except OSError:
        return False
    os.setpriority(os.PRIO_PROCESS, 0, before)
    return True
