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
from edgert.core.toml import to_toml
from edgert.scheduling.locality_fairness import PLACEMENTS
from tests.faults.circumstances import Spark
from tests.faults.fault import DOWN, NOTHING, Fault, seconds
from tests.faults.publisher import FLOW, WINDOW_S, document
from tests.integration.rig import FLEET

PLACED_SLOTS: Final = 3
"""Seeds with so many slots are those of `--placed`."""
LONGEST_S: Final = 60.0
ANSWERED_S: Final = 10.0
"""A change of plan is waited for so long where nothing is killed in its midst. With a full disk it takes longer."""
READY_S: Final = 20.0
"""From the start of the gateway until its slots run."""

if TYPE_CHECKING:
    from pathlib import Path

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
    """The flow goes on by another plan: by hand or by a scheduler. Soon after the request a slot or the gateway may be
    killed. A gateway that is down is started first, for a request to it would change nothing."""

    by: str
    """A scheduler; "": by hand."""
    operator: str
    further: int
    """By hand: the operator moves on by so many slots, so that it never stays where it is."""
    kill: Literal["", "slot", "gateway"]
    after_s: float
    """From the request to the kill."""
    name = "place"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        by, operator = draw.choice(("", "", *PLACEMENTS)), draw.choice(("readings", "valid", "window", "central"))
        kill: Literal["", "slot", "gateway"] = draw.choice(("", "slot", "slot", "gateway"))
        after_s = round(draw.uniform(0.0, 0.15), 3)
        return cls(seconds(draw, 0.1, 1.0), by, operator, draw.randrange(1, PLACED_SLOTS), kill, after_s)

    @property
    def sure(self) -> bool:
        """True if the plan changes whenever this is done."""
        return not self.by and not self.kill

    @classmethod
    def fits(cls, slots: int, spark: Spark) -> bool:
        return slots == PLACED_SLOTS

    def inject(self, path: WholePath) -> str:
        path.begin("gateway")
        path.slots_run(READY_S)
        plans = len(path.plans)
        asked = threading.Thread(target=self._ask, args=(path,), daemon=True)
        asked.start()
        if not self.kill:
            asked.join(ANSWERED_S)
            told = path.placed[-1] if path.placed and not asked.is_alive() else "no answer yet"
            return told if len(path.plans) > plans else f"{NOTHING}{told}"
        time.sleep(self.after_s)  # no condition to wait for: it is the moment that is drawn
        if self.kill == "gateway":
            return "asked for; the gateway is killed" if path.end("gateway") else DOWN
        pids = [slot["pid"] for slot in path.status().get("slots", ()) if slot["running"]]
        if not pids:
            return f"{NOTHING}the slots start"
        with suppress(ProcessLookupError):
            os.kill(pids[self.further % len(pids)], signal.SIGKILL)
        return "asked for; a slot is killed"

    def _ask(self, path: WholePath) -> None:
        socket = path.daemon.data / "control.sock"
        try:
            how: dict[str, Any] = {"by": self.by} if self.by else {"moves": {self.operator: self._slot(socket)}}
            answer = call(socket, "place", {"flow": FLOW, **how}, LONGEST_S)
            if answer["plan"]:  # 0: nothing has moved yet
                path.plans.add((answer["version"], answer["plan"]))
            path.placed.append(f"version {answer['version']}, plan {answer['plan']}: {answer['assignment']}")
        except EdgertError as error:
            path.placed.append(f"refused: {error}")

    def _slot(self, socket: Path) -> int:
        """The slot to which the operator moves by hand."""
        instances = call(socket, "figures")["flows"][FLOW]["instances"].values()
        now: int = next(one["slot"] for one in instances if self.operator in one["operators"])
        return (now + self.further) % PLACED_SLOTS

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
