"""The section `[sched]` of the agent's settings."""

from __future__ import annotations

from dataclasses import dataclass

from agent.osched.rules import broken
from agent.osched.schedule import MECHANISMS
from edgert.core.config import setting


@dataclass(frozen=True, slots=True)
class Sched:
    """How the agent has the Linux scheduler serve the flows (see docs/internals/os-scheduling.md)."""

    enabled: bool = setting(True, doc="false: no thread's scheduling is changed, and nothing is measured")
    policy: str = setting(
        "qs",
        doc="policy, with its period and a condition if wanted: `qs`, `slack every 100 ms`, "
        "`when cpu > 80 %: qs else: none`; policies: qs, hr, fcfs, ioq, slack, random, constant, none",
        check=broken,
    )
    period_s: float = setting(
        1.0, doc="time between two looks of a policy without a period of its own", unit="s", minimum=0.05, maximum=3600
    )
    mechanism: str = setting(
        "nice",
        doc="how priorities reach the kernel; groups: equal shares of the CPU per flow; slice: how soon, not how much "
        "(Linux 6.12 and newer)",
        choices=MECHANISMS,
    )
    nice_best: int = setting(
        0,
        doc="nice value of the greatest priority; below 0 it goes before the rest of the board",
        minimum=-20,
        maximum=19,
    )
    nice_worst: int = setting(19, doc="greatest nice value that is given", minimum=-20, maximum=19)
    smoothing: float = setting(
        1.0,
        doc="part of a new priority that counts, the rest is that of the period before; 1: none",
        minimum=0.01,
        maximum=1,
    )
    pool_weights: bool = setting(False, doc="also set the weights of instances in the pools of our own slots")
    root_group: str = setting(
        "auto",
        doc="put all scheduled threads into one control group, so that their nice values compare; auto: where they "
        "would not compare otherwise (the kernel's autogroups, or services with groups of their own)",
        choices=("auto", "always", "never"),
    )
    drivers: tuple[str, ...] = setting(
        (), doc="engines, each KIND=ADDRESS, such as edgert=/run/edgert/control.sock; empty: this board's gateway"
    )
