"""What a seed does and when: pure, so that a seed means the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random
from typing import Any

from tests.faults.clocks import ClockStep
from tests.faults.disks import DiskFull, TornWrite
from tests.faults.fault import Fault
from tests.faults.kills import (
    KillCentralBroker,
    KillCollector,
    KillGateway,
    KillSensorsBroker,
    KillSlot,
    LoseCentralBroker,
)
from tests.faults.links import Cut, Delay, Flap, Repeat, Stall, Swallow

KINDS: tuple[type[Fault], ...] = (
    KillGateway, KillSlot, KillCollector, KillCentralBroker, LoseCentralBroker, KillSensorsBroker,
    Cut, Flap, Stall, Swallow, Repeat, Delay,
    DiskFull, TornWrite,
    ClockStep,
)  # fmt: skip
DURATION_S = 8.0
"""How long messages are published."""


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

    def __str__(self) -> str:
        pool = ", ".join(f"{key} {value}" for key, value in self.pool.items())
        head = f"seed {self.seed}: pool: {pool}; checkpoint every {self.interval_s:g} s; {self.rate:g} messages/s"
        return "\n".join([head, *(f"  {i}" for i in self.injections)])


def make(seed: int) -> Plan:
    """The plan of a seed."""
    draw = Random(seed)
    slots = draw.choice((0, 2))
    pool: dict[str, Any] = {"slots": slots, "fusion": draw.choice(("full", "none"))}
    if slots:
        pool["placement"] = draw.choice(("locality", "even"))
    kinds = [kind for kind in KINDS if kind.fits(slots)]
    times = sorted(round(draw.uniform(0.3, DURATION_S), 2) for _ in range(draw.randint(3, 7)))
    injections = tuple(Injection(at, draw.choice(kinds).draw(draw)) for at in times)
    return Plan(seed, pool, draw.choice((0.2, 0.5, 1.0)), draw.choice((50.0, 200.0)), injections)
