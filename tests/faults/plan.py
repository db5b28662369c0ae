"""What a seed does and when: pure, so that a seed means the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random
from typing import Any

from edgert.flow.delivery import Delivery
from tests.faults.changes import Redeploy, Stop
from tests.faults.clocks import ClockStep
from tests.faults.disks import DiskFull, TornWrite
from tests.faults.fault import Fault
from tests.faults.kills import (
    KillCentralBroker,
    KillCollector,
    KillCollectorAtCommit,
    KillFleetJob,
    KillGateway,
    KillGatewayAtCommit,
    KillSensorsBroker,
    KillSlot,
    LoseCentralBroker,
)
from tests.faults.links import Cut, Delay, Flap, Repeat, Stall, Swallow

KINDS: tuple[type[Fault], ...] = (
    KillGateway, KillGatewayAtCommit, KillSlot, KillCollector, KillCollectorAtCommit,
    KillCentralBroker, LoseCentralBroker, KillSensorsBroker,
    Cut, Flap, Stall, Swallow, Repeat, Delay,
    DiskFull, TornWrite,
    ClockStep,
    Redeploy, Stop,
)  # fmt: skip
DURATION_S, SPARK_DURATION_S = 8.0, 30.0
"""How long messages are published."""
SPARK_STARTS_S = 15.0
"""The fleet job has begun its work by then, if the machine is not too busy."""


@dataclass(frozen=True, slots=True)
class Injection:
    at: float
    """Seconds after the first message."""
    fault: Fault

    def __str__(self) -> str:
        values = (f"{f.name} {getattr(self.fault, f.name)}" for f in fields(self.fault) if f.name != "length_s")
        what = ", ".join([self.fault.name, *values])
        return f"{self.at:5.2f} s: {what}" + (f", for {self.fault.length_s:g} s" if self.fault.length_s else "")


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    pool: dict[str, Any]
    """The gateway's settings of that section."""
    interval_s: float
    """Between checkpoints."""
    rate: float
    """Messages per second."""
    injections: tuple[Injection, ...]
    duration_s: float = DURATION_S
    spark: bool = False
    """With the fleet job: what is compared is the fleet table."""
    delivery: Delivery = "exactly-once"
    """Of the flow. At least once: what is doubled must be foreseen by the gateway."""

    def __str__(self) -> str:
        pool = ", ".join(f"{key} {value}" for key, value in self.pool.items())
        spark = " with Spark" if self.spark else ""
        every = f"checkpoint every {self.interval_s:g} s; {self.rate:g} messages/s"
        head = f"seed {self.seed}{spark}, {self.delivery}: pool: {pool}; {every}"
        return "\n".join([head, *(f"  {i}" for i in self.injections)])


def make(seed: int, spark: bool = False, delivery: Delivery = "exactly-once") -> Plan:
    """The plan of a seed. With Spark it takes longer, and the fleet job is killed too. An at-least-once flow meets the
    same faults, between checkpoints that are far apart."""
    draw = Random(seed)
    slots = draw.choice((0, 2))
    pool: dict[str, Any] = {"slots": slots, "fusion": draw.choice(("full", "none"))}
    if slots:
        pool["placement"] = draw.choice(("locality", "even"))
    kinds = [kind for kind in KINDS if kind.fits(slots)]
    duration_s = SPARK_DURATION_S if spark else DURATION_S
    times = sorted(round(draw.uniform(0.3, duration_s), 2) for _ in range(draw.randint(3, 7)))
    injections = [Injection(at, draw.choice(kinds).draw(draw)) for at in times]
    interval_s, rate = draw.choice((0.2, 0.5, 1.0)), draw.choice((50.0, 200.0))
    if spark:
        at = round(draw.uniform(SPARK_STARTS_S, duration_s), 2)
        injections.append(Injection(at, KillFleetJob.draw(draw)))
    if delivery == "at-least-once":
        interval_s *= 5
    return Plan(seed, pool, interval_s, rate, tuple(injections), duration_s, spark, delivery)
