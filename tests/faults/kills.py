"""Processes that end as in a power cut (SIGKILL), and are started again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from tests.faults.circumstances import Spark
from tests.faults.fault import DOWN, NOTHING, Fault, seconds

if TYPE_CHECKING:
    from tests.faults.path import BrokerName, Program, WholePath

COMMIT_S = 1.5
"""How long a commit is waited for."""


@dataclass(frozen=True, slots=True)
class Kill(Fault):
    """Of one of our programs."""

    who: ClassVar[Program]
    longest_s: ClassVar[float] = 3.0

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.1, cls.longest_s))

    def inject(self, path: WholePath) -> str:
        return "killed" if path.end(self.who) else DOWN

    def heal(self, path: WholePath) -> None:
        path.begin(self.who)


@dataclass(frozen=True, slots=True)
class KillGateway(Kill):
    """The daemon; its slots end with it."""

    who = "gateway"
    name = "kill the gateway"


@dataclass(frozen=True, slots=True)
class KillCollector(Kill):
    who = "collector"
    name = "kill the collector"


@dataclass(frozen=True, slots=True)
class KillAtCommit(Kill):
    """Within or just after a commit: before or after acknowledgements and results leave."""

    delay_s: float
    longest_s = 1.5

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.1, cls.longest_s), round(draw.uniform(0.0, 0.03), 3))

    def inject(self, path: WholePath) -> str:
        came = _changes(lambda: self.commits(path))
        time.sleep(self.delay_s)  # no condition to wait for: it is the moment that is drawn
        if not path.end(self.who):
            return DOWN
        return "killed at a commit" if came else f"killed; no commit came in {COMMIT_S:g} s"

    def commits(self, path: WholePath) -> int:
        """What changes with each."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class KillGatewayAtCommit(KillAtCommit):
    who = "gateway"
    name = "kill the gateway at a commit"

    def commits(self, path: WholePath) -> int:
        log = path.database.with_name(path.database.name + "-wal")
        return log.stat().st_mtime_ns if log.exists() else 0


@dataclass(frozen=True, slots=True)
class KillCollectorAtCommit(KillAtCommit):
    """Of the landing table."""

    who = "collector"
    name = "kill the collector at a commit"

    def commits(self, path: WholePath) -> int:
        return path.commits("landing")


def _changes(look: Callable[[], int]) -> bool:
    """Returns when what `look` gives changes; false if that takes too long."""
    before, end = look(), time.monotonic() + COMMIT_S
    while time.monotonic() < end:
        if look() != before:
            return True
        time.sleep(0.001)
    return False


@dataclass(frozen=True, slots=True)
class KillSlot(Fault):
    """The daemon starts it again."""

    which: int
    name = "kill a slot"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(0.0, draw.randrange(64))

    @classmethod
    def fits(cls, slots: int, spark: Spark) -> bool:
        return slots > 0

    def inject(self, path: WholePath) -> str:
        slots = [s for s in path.status().get("slots", ()) if s["running"]]
        if not slots:
            return f"{NOTHING}no slot runs"
        slot = slots[self.which % len(slots)]
        try:
            os.kill(slot["pid"], signal.SIGKILL)
        except ProcessLookupError:
            return f"{NOTHING}it ended before"
        return f"killed slot {slot['slot']}"


@dataclass(frozen=True, slots=True)
class KillBroker(Fault):
    which: ClassVar[BrokerName]
    keeps: ClassVar[Literal["all", "what it saved last", "nothing"]]

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.1, 2.0))

    def inject(self, path: WholePath) -> str:
        if not path.end_broker(self.which, forget=self.keeps == "nothing"):
            return DOWN
        return f"killed; it keeps {self.keeps}"

    def heal(self, path: WholePath) -> None:
        path.begin_broker(self.which)


@dataclass(frozen=True, slots=True)
class KillCentralBroker(KillBroker):
    """It comes back with what it saved last, up to a second old: the rest of what it acknowledged is gone."""

    which = "central"
    keeps = "what it saved last"
    name = "kill the central broker"


@dataclass(frozen=True, slots=True)
class LoseCentralBroker(KillBroker):
    """All that it had acknowledged is gone."""

    which = "central"
    keeps = "nothing"
    name = "kill the central broker and delete its storage"


@dataclass(frozen=True, slots=True)
class KillSensorsBroker(KillBroker):
    """With durable storage: all that it knew when it was killed is on its disk.

    Mosquitto saves after it has acknowledged, so a kill at any moment may lose or repeat what it had acknowledged;
    nobody behind it could tell. So it is brought to a moment at which its file says all: nothing comes in or goes out.
    """

    which = "sensors"
    keeps = "all"
    name = "kill the sensors' broker"
