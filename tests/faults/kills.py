"""Processes that end as in a power cut (SIGKILL), and are started again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal, Self

from tests.faults.fault import NOTHING, Fault, seconds
from tests.faults.publisher import FLOW

if TYPE_CHECKING:
    from tests.faults.path import WholePath

DOWN = f"{NOTHING}it is down"
COMMIT_S = 1.5
"""How long a commit is waited for."""


@dataclass(frozen=True, slots=True)
class KillGateway(Fault):
    """The daemon; its slots end with it."""

    name = "kill the gateway"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.1, 2.0))

    def inject(self, path: WholePath) -> str:
        return "killed" if path.end("gateway") else DOWN

    def heal(self, path: WholePath) -> None:
        path.begin("gateway")


@dataclass(frozen=True, slots=True)
class KillCollector(Fault):
    name = "kill the collector"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.1, 3.0))

    def inject(self, path: WholePath) -> str:
        return "killed" if path.end("collector") else DOWN

    def heal(self, path: WholePath) -> None:
        path.begin("collector")


@dataclass(frozen=True, slots=True)
class KillGatewayAtCommit(KillGateway):
    """Within or just after a commit: before or after acknowledgements and results leave."""

    delay_s: float
    name = "kill the gateway at a commit"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.1, 1.0), round(draw.uniform(0.0, 0.03), 3))

    def inject(self, path: WholePath) -> str:
        log = path.database.with_name(path.database.name + "-wal")
        came = _changes(lambda: log.stat().st_mtime_ns if log.exists() else 0)
        time.sleep(self.delay_s)
        return _killed("gateway", path, came)


@dataclass(frozen=True, slots=True)
class KillCollectorAtCommit(KillCollector):
    """Just after a commit to the landing table: before or after its acknowledgement leaves."""

    delay_s: float
    name = "kill the collector at a commit"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.1, 2.0), round(draw.uniform(0.0, 0.03), 3))

    def inject(self, path: WholePath) -> str:
        log = path.tables / "landing" / FLOW / "_delta_log"
        came = _changes(lambda: len(list(log.glob("*.json"))))
        time.sleep(self.delay_s)
        return _killed("collector", path, came)


def _changes(look: Callable[[], int]) -> bool:
    """Returns when what `look` gives changes; false if that takes too long."""
    before, end = look(), time.monotonic() + COMMIT_S
    while time.monotonic() < end:
        if look() != before:
            return True
        time.sleep(0.001)
    return False


def _killed(program: Literal["gateway", "collector"], path: WholePath, came: bool) -> str:
    if not path.end(program):
        return DOWN
    return "killed at a commit" if came else f"killed; no commit came in {COMMIT_S:g} s"


@dataclass(frozen=True, slots=True)
class KillSlot(Fault):
    """The daemon starts it again."""

    which: int
    name = "kill a slot"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(0.0, draw.randrange(64))

    @classmethod
    def fits(cls, slots: int) -> bool:
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
class KillFleetJob(Fault):
    """Spark's driver and, in local mode, its executor; the next one waits for its lease."""

    name = "kill the fleet job"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.1, 3.0))

    def inject(self, path: WholePath) -> str:
        log = path.tables / "fleet" / FLOW / "_delta_log"
        commits = len(list(log.glob("*.json")))
        return f"killed after {commits} commits of its table" if path.end("fleet job") else DOWN

    def heal(self, path: WholePath) -> None:
        path.begin("fleet job")


@dataclass(frozen=True, slots=True)
class KillCentralBroker(Fault):
    """It comes back with what it saved last, up to a second old."""

    name = "kill the central broker"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.1, 2.0))

    def inject(self, path: WholePath) -> str:
        return "killed" if path.end_broker("central") else DOWN

    def heal(self, path: WholePath) -> None:
        path.begin_broker("central")


@dataclass(frozen=True, slots=True)
class LoseCentralBroker(KillCentralBroker):
    """All that it had acknowledged is gone."""

    name = "kill the central broker and delete its storage"

    def inject(self, path: WholePath) -> str:
        return "killed, storage deleted" if path.end_broker("central", forget=True) else DOWN


@dataclass(frozen=True, slots=True)
class KillSensorsBroker(Fault):
    """With durable storage: all that it knew when it was killed is on its disk.

    Mosquitto saves after it has acknowledged, so a kill at any moment may lose or repeat what it had acknowledged;
    nobody behind it could tell. So it is brought to a moment at which its file says all: nothing comes in or goes out.
    """

    name = "kill the sensors' broker"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.1, 1.5))

    def inject(self, path: WholePath) -> str:
        return "killed, all was saved" if path.end_broker("sensors") else DOWN

    def heal(self, path: WholePath) -> None:
        path.begin_broker("sensors")
