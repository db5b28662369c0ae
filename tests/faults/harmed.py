"""A file of the gateway's data folder is deleted, emptied, cut, flipped or old: no more is missing than is said."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Self

from tests.faults.fault import DOWN, Fault, seconds
from tests.faults.harms import BY_NAME
from tests.integration.harms import FILES

if TYPE_CHECKING:
    from tests.faults.path import WholePath

FIRST_S = 2.0
"""After its start the gateway counts messages that no flow takes yet, and writes its mark."""
READY_S = 60.0
"""A busy machine needs longer for a start."""


@dataclass(frozen=True, slots=True)
class HarmFile(Fault):
    """While the gateway is down, as after a power cut."""

    file: str
    how: str
    seed: int
    name = "harm a file"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        file = draw.choice((*FILES, *("gateway.db", "gateway.db-wal") * 3))
        return cls(seconds(draw, 0.1, 1.0), file, draw.choice(list(BY_NAME)), draw.getrandbits(32))

    def inject(self, path: WholePath) -> str:
        path.begin("gateway")
        status = path.daemon.wait(lambda s: s["flows"] and s["uptime_s"] > FIRST_S, "its flow", READY_S)
        if not path.end("gateway"):
            return DOWN
        return path.harms.harm(self.file, self.how, self.seed, path.daemon.data, status)

    def heal(self, path: WholePath) -> None:
        path.begin("gateway")
