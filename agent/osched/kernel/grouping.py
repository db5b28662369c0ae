"""The reason why nice values of some processes do not compare with each other."""

from __future__ import annotations

from collections.abc import Sequence

from agent.drivers.procfs import ProcFs
from agent.osched.kernel.cgroups import Cgroups, cpu_path


def incomparable(pids: Sequence[int], proc: ProcFs, cgroups: Cgroups | None) -> str:
    """Why nice does not work between these processes; empty if it does.

    The kernel compares nice values within a control group with the cpu controller. Threads in the root group are
    grouped once more, by session, where autogroups are on (sched(7)).
    """
    version = cgroups.version if cgroups else 1
    paths = {path for pid in pids if (path := cpu_path(proc.cgroups(pid), version)) is not None} if cgroups else set()
    if len(paths) > 1:
        return f"the processes are in {len(paths)} control groups, and nice compares only within one"
    if paths - {"/"} or not proc.autogroup_on():
        return ""
    sessions = {name for pid in pids if (name := proc.autogroup(pid))}
    if len(sessions) > 1:
        return f"the processes are in {len(sessions)} sessions, and with autogroups on nice compares only within one"
    return ""
