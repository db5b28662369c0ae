"""Runs an engine under a load, in a process of its own; what all benchmarks of engines share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.processes import module
from benchmarks.thread_per_operator import OWPOA

BOUND_MS: Final[dict[str, float]] = {"etl": 50.0, "stats": 100.0, "pred": 100.0, "train": 100.0}
"""Latency (p99) within which a rate counts as borne: that of EdgeWise's figures where it says one."""
FIRST_RATE: Final[dict[str, float]] = {"etl": 3_000.0, "stats": 5_000.0, "pred": 10_000.0, "train": 10_000.0}
TICK_S: Final = 0.005
BY_HAND, LOOP, FUSED_LOOP, ENGINE = "by hand", "loop", "fused loop", "engine"
"""Sides whose cost is compared (`beside.py`). The loops call the operators' functions: chains one after the other, or
what the engine makes of them when it fuses all it can."""
ROWS: Final = 200
"""Rows per turn at most, as a gateway has it."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Seconds."""

    warm_up: float
    steady: float


OF_A_TRY: Final = Spans(0.5, 1.5)
QUICK: Final = Spans(0.2, 0.4)


@dataclass(frozen=True, slots=True)
class Subject:
    """An engine as it is set up for one figure."""

    policy: str
    consumption: str = "at-most"
    fusion: str = "chains"
    rows: int = ROWS

    @property
    def label(self) -> str:
        """Its name in figures."""
        words = [self.policy, *([] if self.consumption == "at-most" else [self.consumption])]
        words += [] if self.fusion == "chains" else [f"fusion {self.fusion}"]
        return ", ".join([*words, *([] if self.rows == ROWS else [f"at most {self.rows} per turn"])])


RIVAL, FAIR = Subject(OWPOA), Subject("congestion-aware")
"""Who are compared: with chains of stateless operators fused, both."""
BARE = Subject(LOOP)
"""The same operators, fused as for these two, without any scheduler: more than it bears neither of them can bear."""


def probe(
    folder: Path, application: str, subject: Subject, rates: Sequence[float], spans: Spans
) -> list[dict[str, Any]]:
    """One load after the other."""
    arguments: tuple[object, ...] = (
        "--application", application, "--policy", subject.policy, "--consumption", subject.consumption,
        "--consumption-rows", subject.rows, "--fusion", subject.fusion, "--tick", TICK_S,
        "--warm-up", spans.warm_up, "--seconds", spans.steady, "--rate", *rates,
    )  # fmt: skip
    with module("benchmarks.riotbench.engine", folder / "engine.log", *arguments) as engine:
        return [json.loads(engine.read()) for _ in rates]


def fault(told: dict[str, Any]) -> str:
    """Why a load does not count."""
    lost = told["shed"] + told["failures"]
    return f"{lost} rows or batches were lost" if lost else ""


def bears(application: str, told: dict[str, Any]) -> bool:
    """Whether p99 stayed within the bound, and nothing was lost."""
    return bool(told["p99_ms"] and told["p99_ms"] <= BOUND_MS[application] and not fault(told))
