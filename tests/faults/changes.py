"""What people do meanwhile: a flow gets another version, programs are stopped in good order."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from edgert.control.client import call
from edgert.core.errors import EdgertError
from edgert.flow.document import to_toml
from edgert.scheduling.locality_fairness import PLACEMENTS
from tests.faults.fault import DOWN, NOTHING, STARTING, Fault, Spark, seconds
from tests.faults.publisher import FLOW, WINDOW_S, document
from tests.integration.rig import FLEET

PLACED_SLOTS: Final = 3
"""Seeds with so many slots are those of `--placed`."""
LONGEST_S: Final = 60.0

if TYPE_CHECKING:
    from tests.faults.path import Program, WholePath


@dataclass(frozen=True, slots=True)
class Redeploy(Fault):
    """Another version of the flow: open windows are shipped, a new epoch begins. Nobody waits for the answer: with the
    link cut, or a central broker that loses what it has, it comes late or never. The first one that is wider gives the
    tables a column more, over which a stream of the fleet job ends and begins again while its process lives; one with
    shorter windows gets tables of its own."""

    interval_s: float
    wider: bool
    window_s: float = WINDOW_S
    name = "deploy another version"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(0.0, seconds(draw, 0.2, 1.0), draw.random() < 0.5)

    def inject(self, path: WholePath) -> str:
        if not path.broker.running:
            return f"{NOTHING}the central broker is down"
        topic = f"edgert/v1/{FLEET}/{path.daemon.name}/flows/{FLOW}"
        version = document(self.interval_s, path.delivery, self.wider, self.window_s, path.late)
        path.publish([(topic, to_toml(version).encode())], retain=True)
        return "published"


@dataclass(frozen=True, slots=True)
class Place(Fault):
    """The flow goes on by another plan: by hand or by a scheduler. Nobody waits for the answer, so that other faults
    fall into its midst; soon after it a slot or the gateway may be killed."""

    by: str
    """A scheduler; "": by hand."""
    operator: str
    slot: int
    kill: Literal["", "slot", "gateway"]
    after_s: float
    """From the request to the kill."""
    name = "place"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        by, operator = draw.choice(("", "", *PLACEMENTS)), draw.choice(("readings", "valid", "window", "central"))
        kill: Literal["", "slot", "gateway"] = draw.choice(("", "slot", "slot", "gateway"))
        after_s = round(draw.uniform(0.0, 0.15), 3)
        return cls(seconds(draw, 0.1, 1.0), by, operator, draw.randrange(PLACED_SLOTS), kill, after_s)

    @classmethod
    def fits(cls, slots: int, spark: Spark) -> bool:
        return slots == PLACED_SLOTS

    def inject(self, path: WholePath) -> str:
        status = path.status()
        pids = [slot["pid"] for slot in status.get("slots", ()) if slot["running"]]
        if not pids:
            return DOWN if not status else STARTING
        how = {"by": self.by} if self.by else {"moves": {self.operator: self.slot}}
        asked = threading.Thread(target=self._ask, args=(path, how), daemon=True)
        asked.start()
        if not self.kill:
            asked.join()
            return f"{path.placed[-1]}"
        time.sleep(self.after_s)  # no condition to wait for: it is the moment that is drawn
        if self.kill == "gateway":
            return "asked for; the gateway is killed" if path.end("gateway") else DOWN
        with suppress(ProcessLookupError):
            os.kill(pids[self.slot % len(pids)], signal.SIGKILL)
        return "asked for; a slot is killed"

    def _ask(self, path: WholePath, how: dict[str, Any]) -> None:
        try:
            answer = call(path.daemon.data / "control.sock", "place", {"flow": FLOW, **how}, LONGEST_S)
            path.placed.append(f"plan {answer['plan']}: {answer['assignment']}")
        except EdgertError as error:
            path.placed.append(f"refused: {error}")

    def heal(self, path: WholePath) -> None:
        path.begin("gateway")


@dataclass(frozen=True, slots=True)
class Stop(Fault):
    """SIGTERM, and the exit status must be 0, but for one that is still starting."""

    who: Program
    name = "stop"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.1, 2.0), draw.choice(("gateway", "collector")))

    def inject(self, path: WholePath) -> str:
        return "stopped" if path.end(self.who, in_order=True) else DOWN

    def heal(self, path: WholePath) -> None:
        path.begin(self.who)
