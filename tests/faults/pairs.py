"""What happens where two collectors share the results: one of them is killed, or sleeps for longer than its lease."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Self

from tests.faults.fault import DOWN, STARTING, Fault, seconds
from tests.faults.path import LEASE_S

if TYPE_CHECKING:
    from tests.faults.path import Program, WholePath

LONGEST_S = 2.0 * LEASE_S
"""So that its partition goes to the other, or does not."""
BOTH: tuple[Program, ...] = ("collector", "second collector")


@dataclass(frozen=True, slots=True)
class OneOfTwo(Fault):
    who: Program

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.2, LONGEST_S), draw.choice(BOTH))


@dataclass(frozen=True, slots=True)
class KillOneOfTwo(OneOfTwo):
    name = "kill one of two collectors"

    def inject(self, path: WholePath) -> str:
        return f"killed the {self.who}" if path.end(self.who) else DOWN

    def heal(self, path: WholePath) -> None:
        path.begin(self.who)


@dataclass(frozen=True, slots=True)
class SleepOneOfTwo(OneOfTwo):
    """As a machine that is suspended, between its look at its leases and a commit or anywhere else."""

    name = "one of two collectors sleeps"

    def inject(self, path: WholePath) -> str:
        program = path.program(self.who)
        if not program.running:
            return DOWN
        assert program.process is not None
        if not program.handles(signal.SIGTERM):
            return STARTING
        program.process.send_signal(signal.SIGSTOP)
        return f"the {self.who} sleeps"

    def heal(self, path: WholePath) -> None:
        program = path.program(self.who)
        if program.running:
            assert program.process is not None
            program.process.send_signal(signal.SIGCONT)
