"""Wall clocks that jump, as when a board without one is told the time, or told it wrongly. The monotonic clock goes on,
as a kernel's does."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Self

from tests.faults.fault import Fault, seconds
from tests.faults.wall_clock import set_offset

if TYPE_CHECKING:
    from tests.faults.path import Program, WholePath

HOUR_S = 3600.0
YEARS_S = 20 * 365.25 * 86_400.0


@dataclass(frozen=True, slots=True)
class WrongClock(Fault):
    """The gateway's clock is wrong for a moment while messages come that have no time of their own: an hour or a day
    behind or ahead, or 20 years ahead."""

    step_s: float
    name = "wrong clock"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.5, 2.5), draw.choice((-HOUR_S, HOUR_S, -24 * HOUR_S, 24 * HOUR_S, YEARS_S)))

    def inject(self, path: WholePath) -> str:
        set_offset(path.clock_file("gateway"), self.step_s)
        return f"{self.step_s:+g} s"

    def heal(self, path: WholePath) -> None:
        set_offset(path.clock_file("gateway"), 0.0)


@dataclass(frozen=True, slots=True)
class ClockStep(Fault):
    """An hour forward or back, and then back again."""

    who: Program
    step_s: float
    name = "clock step"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        who: Program = draw.choice(("gateway", "gateway", "collector"))
        return cls(seconds(draw, 1.0, 8.0), who, draw.choice((-HOUR_S, HOUR_S)))

    def inject(self, path: WholePath) -> str:
        set_offset(path.clock_file(self.who), self.step_s)
        return f"{self.step_s:+g} s"

    def heal(self, path: WholePath) -> None:
        set_offset(path.clock_file(self.who), 0.0)
