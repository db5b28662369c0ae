"""What a fault is. One is a small class in a file of its kind: kills, links, disks, clocks, changes, pairs, jobs.

To add one: write the class there, and its name in `tests.faults.plan.KINDS` or, of two collectors, `PAIR_KINDS`, of the
Spark job, `JOB_KINDS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar, Self

from tests.faults.circumstances import Spark

if TYPE_CHECKING:
    from tests.faults.path import WholePath

NOTHING = "nothing: "
"""How `inject` begins what it says when there was nothing to be done."""
DOWN = f"{NOTHING}it is down"
STARTING = f"{NOTHING}it starts"


@dataclass(frozen=True, slots=True)
class Fault(ABC):
    """Its fields say all that is to be done, so that a plan can be printed and compared."""

    length_s: float
    """From `inject` to `heal`."""
    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def draw(cls, draw: Random) -> Self:
        """One at random. Pure."""

    @classmethod
    def fits(cls, slots: int, spark: Spark) -> bool:
        """Whether it means anything on a gateway with so many slots and such a fleet job."""
        return True

    @abstractmethod
    def inject(self, path: WholePath) -> str:
        """Does it, and says what was done; or `NOTHING` and why, if there is nothing to be done to (it is down)."""

    def heal(self, path: WholePath) -> None:
        """Takes it back. Called once, also when `inject` did nothing."""


def seconds(draw: Random, low: float, high: float) -> float:
    """A time, to be read in a plan."""
    return round(draw.uniform(low, high), 2)
