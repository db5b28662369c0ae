"""What people do meanwhile: a flow gets another version, programs are stopped in good order."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Self

from edgert.flow.document import to_toml
from tests.faults.fault import DOWN, NOTHING, Fault, seconds
from tests.faults.publisher import FLOW, WINDOW_S, document
from tests.integration.rig import FLEET

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
        version = document(self.interval_s, path.delivery, self.wider, self.window_s)
        path.publish([(topic, to_toml(version).encode())], retain=True)
        return "published"


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
