"""What a seed does and when: pure, so that a seed means the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

from edgert.flow.options.delivery import Delivery
from tests.faults.changes import PLACED_SLOTS, Place, Redeploy, Stop
from tests.faults.circumstances import DURATION_S, Circumstances, Scene, Spark
from tests.faults.clocks import ClockStep, WrongClock
from tests.faults.disks import DiskFull, TornWrite
from tests.faults.fault import Fault
from tests.faults.hang_ups import HangUp, HangUpAtLarge
from tests.faults.harmed import HarmFile
from tests.faults.hostile import Flood
from tests.faults.jobs import (
    DeleteCheckpoint,
    FillJobsDisk,
    KillExecutor,
    KillFleetJob,
    KillJava,
    KillPython,
    KillWorker,
    StepFleetJobsClock,
    StopFleetJob,
    TakeLease,
)
from tests.faults.kills import (
    KillCentralBroker,
    KillCollector,
    KillCollectorAtCommit,
    KillGateway,
    KillGatewayAtCommit,
    KillSensorsBroker,
    KillSlot,
    LoseCentralBroker,
)
from tests.faults.links import Cut, Delay, Flap, LoseRoute, Repeat, Stall, Swallow
from tests.faults.pairs import KillOneOfTwo, SleepOneOfTwo
from tests.faults.publisher import WINDOW_S

KINDS: tuple[type[Fault], ...] = (
    KillGateway, KillGatewayAtCommit, KillSlot, KillCollector, KillCollectorAtCommit,
    KillCentralBroker, LoseCentralBroker, KillSensorsBroker,
    Cut, Flap, LoseRoute, Stall, Swallow, Repeat, Delay,
    DiskFull, TornWrite,
    ClockStep,
    Redeploy, Stop,
)  # fmt: skip
JOB_KINDS: tuple[type[Fault], ...] = (
    KillFleetJob, KillPython, KillJava, KillExecutor, KillWorker,
    DeleteCheckpoint, FillJobsDisk, TakeLease, StepFleetJobsClock, StopFleetJob,
)  # fmt: skip
"""Of the fleet job: they come beside the others, where there is one."""
PAIR_KINDS: tuple[type[Fault], ...] = (KillOneOfTwo, SleepOneOfTwo)
"""Of two collectors: they come beside the others, where there are two."""
PLACED_KINDS: tuple[type[Fault], ...] = (
    Place,
    Place,
    Place,
    Place,
    KillGateway,
    KillGatewayAtCommit,
    KillSlot,
    KillSlot,
    DiskFull,
    Redeploy,
)
"""Of the seeds of `make_placed`."""
UNTIMED_KINDS: tuple[type[Fault], ...] = (
    WrongClock, WrongClock, WrongClock, KillGateway, KillGatewayAtCommit, KillSlot, KillSensorsBroker, Redeploy, Stop,
)  # fmt: skip
"""Of the seeds of `make_untimed`."""
HUNG_UP_KINDS: tuple[type[Fault], ...] = (
    HangUp, HangUpAtLarge, KillCollector, KillCollectorAtCommit, KillCentralBroker, LoseCentralBroker, ClockStep,
)  # fmt: skip
"""Of the seeds of `make_hung_up`: none after which the flow gives out again what it had given out, or at which the
connection to the sensors' broker ends for another reason. Then nobody could say how often the broker hangs up."""
HOSTILE_KINDS: tuple[type[Fault], ...] = (
    Flood, Flood, Flood, Flood, KillGateway, KillGatewayAtCommit, KillSlot, KillCollector, KillCollectorAtCommit, Cut,
)  # fmt: skip
"""Of the seeds of `make_hostile`."""
SPARK_DURATION_S = 15.0
"""Seconds for which messages are published."""
HALVED = 0.5
"""Of the versions of the flow so many have windows half as long."""
MANY = (0, 1, 10)
"""What the fleet job takes for a large batch."""
MOST, MOST_OF_JOB, MOST_OF_PAIR = 7, 2, 2
"""Faults of a seed. A fleet job that starts anew costs a minute of CPU."""
LEAST_PLANS, SURE = 3, 5
"""Least changes of plan of a seed of `make_placed`, and how many of its faults are surely such a change, unless a new
version of the flow or a full disk comes in between."""


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
class Plan(Circumstances):
    injections: tuple[Injection, ...] = ()

    def __str__(self) -> str:
        return "\n".join([Circumstances.__str__(self), *(f"  {i}" for i in self.injections)])


def _halved(injection: Injection) -> Injection:
    assert isinstance(injection.fault, Redeploy)
    return replace(injection, fault=replace(injection.fault, window_s=WINDOW_S / 2))


def make(seed: int, spark: bool = False, delivery: Delivery = "exactly-once") -> Plan:
    """The plan of a seed. With Spark it takes longer; every third has a cluster. Every third has two collectors. An
    at-least-once flow meets the same faults, between checkpoints that are far apart."""
    draw = Random(seed)
    slots = draw.choice((0, 2))
    pool: dict[str, Any] = {"slots": slots, "fusion": draw.choice(("full", "none"))}
    if slots:
        pool["placement"] = draw.choice(("locality", "even"))
    interval_s, rate = draw.choice((0.2, 0.5, 1.0)), draw.choice((50.0, 200.0))
    job: Spark = draw.choice(("local", "local", "cluster")) if spark else ""
    duration_s = SPARK_DURATION_S if spark else DURATION_S

    def injections(kinds: tuple[type[Fault], ...], least: int, most: int) -> list[Injection]:
        fitting = [kind for kind in kinds if kind.fits(slots, job)]
        times = [round(draw.uniform(0.3, duration_s), 2) for _ in range(draw.randint(least, most))]
        return [Injection(at, draw.choice(fitting).draw(draw)) for at in times]

    drawn = injections(KINDS, 3, MOST)
    if spark:
        drawn += injections(JOB_KINDS, 1, MOST_OF_JOB)
    if delivery == "at-least-once":
        interval_s *= 5
    # What follows was added in this order, so that a seed does what it always did, and more.
    many = draw.choice(MANY) if spark else 0
    collectors = draw.choice((1, 1, 2))
    if collectors > 1:
        drawn += injections(PAIR_KINDS, 1, MOST_OF_PAIR)
    upkeep = spark and draw.choice((False, True))
    drawn = [_halved(i) if isinstance(i.fault, Redeploy) and draw.random() < HALVED else i for i in drawn]
    injected = tuple(sorted(drawn, key=lambda i: i.at))
    return Plan(seed, pool, interval_s, rate, duration_s, job, delivery, many, collectors, upkeep, injections=injected)


def make_placed(seed: int) -> Plan:
    """The plan of a seed in which a flow on three slots goes on by other plans again and again, while programs are
    killed. All its operators are fused where they share a slot. At least `SURE` of its faults move an operator by hand
    and kill nothing."""
    draw = Random(seed)
    pool = {"slots": PLACED_SLOTS, "fusion": "full", "placement": draw.choice(("locality", "even"))}
    times = sorted(round(draw.uniform(0.3, 1.5 * DURATION_S), 2) for _ in range(draw.randint(8, 14)))
    faults = [draw.choice(PLACED_KINDS).draw(draw) for _ in times]
    for n in draw.sample(range(len(times)), SURE):
        faults[n] = replace(Place.draw(draw), by="", kill="")
    injected = tuple(map(Injection, times, faults))
    interval_s, rate = draw.choice((0.2, 0.5, 1.0)), draw.choice((50.0, 200.0))
    return Plan(seed, pool, interval_s, rate, 1.5 * DURATION_S, least_plans=LEAST_PLANS, injections=injected)


def make_untimed(seed: int) -> Plan:
    """The plan of a seed in which messages have no time of their own, and the gateway's clock is wrong for moments,
    amid kills. The first fault is one of the clock."""
    draw = Random(seed)
    slots = draw.choice((0, 2))
    pool: dict[str, Any] = {"slots": slots, "fusion": draw.choice(("full", "none"))}
    fitting = [kind for kind in UNTIMED_KINDS if kind.fits(slots, "")]
    times = sorted(round(draw.uniform(0.3, DURATION_S), 2) for _ in range(draw.randint(3, 6)))
    kinds: list[type[Fault]] = [WrongClock, *(draw.choice(fitting) for _ in times[1:])]
    injected = tuple(Injection(at, kind.draw(draw)) for at, kind in zip(times, kinds, strict=True))
    interval_s, rate = draw.choice((0.2, 0.5, 1.0)), draw.choice((50.0, 200.0))
    return Plan(seed, pool, interval_s, rate, untimed=True, injections=injected)


def make_hung_up(seed: int) -> Plan:
    """The plan of a seed in which the sensors' broker hangs up at messages that the flow gives out, and maybe the
    central one at large results. The first fault is the former."""
    return _scene("hung-up", Random(seed), seed, HangUp, HUNG_UP_KINDS, 4)


def make_harmed(seed: int) -> Plan:
    """The plan of a seed in which the gateway is killed twice or three times, and files of its data folder are harmed
    before it starts again. Each time it runs for long enough to write its mark."""
    draw = Random(seed)
    times = [round(3.0 + 5.0 * n + draw.uniform(0.0, 1.0), 2) for n in range(draw.randint(2, 3))]
    plan = _scene("harmed", draw, seed, HarmFile, (HarmFile,), 0)
    injected = tuple(Injection(at, HarmFile.draw(draw)) for at in times)
    return replace(plan, injections=injected, duration_s=times[-1] + 3.0)


def make_hostile(seed: int) -> Plan:
    """The plan of a seed in which a peer floods the central broker, amid kills. Odd seeds have MACs. The first fault is
    a flood."""
    return _scene("hostile", Random(seed), seed, Flood, HOSTILE_KINDS, 6)


def _scene(
    scene: Scene, draw: Random, seed: int, first: type[Fault], kinds: tuple[type[Fault], ...], most: int
) -> Plan:
    """With one fault that is of the kind `first`, and up to so many others."""
    slots = draw.choice((0, 2))
    pool: dict[str, Any] = {"slots": slots, "fusion": draw.choice(("full", "none"))}
    fitting = [kind for kind in kinds if kind.fits(slots, "")]
    times = sorted(round(draw.uniform(0.3, DURATION_S), 2) for _ in range(1 + draw.randint(most // 2, most)))
    drawn: list[type[Fault]] = [first, *(draw.choice(fitting) for _ in times[1:])]
    injected = tuple(Injection(at, kind.draw(draw)) for at, kind in zip(times, drawn, strict=True))
    interval_s, rate = draw.choice((0.2, 0.5, 1.0)), draw.choice((50.0, 200.0))
    return Plan(seed, pool, interval_s, rate, scene=scene, injections=injected)
