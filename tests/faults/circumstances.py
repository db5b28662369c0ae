"""Under which circumstances a seed runs: pure, and known to the path and to the faults alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from edgert.flow.options.delivery import Delivery

HopName = Literal["sensors", "uplink", "collector"]
"""Gateway to the sensors' broker, gateway to the central broker, collector to the central broker."""
Spark = Literal["", "local", "cluster"]
"""Where the fleet job runs: not at all, in one process with its executor, on a cluster of this machine."""

Scene = Literal["", "hung-up", "harmed", "hostile"]
"""What else there is: see `make_hung_up`, `make_harmed` and `make_hostile` of `tests.faults.plan`."""
DURATION_S = 8.0
"""Seconds for which messages are published."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """All of a seed's plan but its faults."""

    seed: int
    pool: dict[str, Any]
    """The gateway's settings of that section."""
    interval_s: float
    """Between checkpoints."""
    rate: float
    """Messages per second."""
    duration_s: float = DURATION_S
    spark: Spark = ""
    """With the fleet job: what is compared is the fleet table."""
    delivery: Delivery = "exactly-once"
    """Of the flow. At least once: what is doubled must be foreseen by the gateway."""
    many: int = 0
    """Contributions of a batch that the fleet job takes for a large one (0: 20,000, as always)."""
    collectors: int = 1
    """Two share the results by leases."""
    upkeep: bool = False
    """Tables are compacted and cleaned up all the time."""
    untimed: bool = False
    """Messages have no time of their own, and the flow drops late rows."""
    scene: Scene = ""
    least_plans: int = 0
    """With fewer changes of plan the seed fails: it has shown nothing."""

    def __str__(self) -> str:
        pool = ", ".join(f"{key} {value}" for key, value in self.pool.items())
        spark = {"": "", "local": " with Spark", "cluster": " with Spark on a cluster"}[self.spark]
        spark += f", batches large from {self.many}" * bool(self.many)
        spark += ", two collectors" * (self.collectors > 1) + ", upkeep" * self.upkeep
        spark += ", messages without a time" * self.untimed + f", {self.scene}" * bool(self.scene)
        every = f"checkpoint every {self.interval_s:g} s; {self.rate:g} messages/s"
        return f"seed {self.seed}{spark}, {self.delivery}: pool: {pool}; {every}"
