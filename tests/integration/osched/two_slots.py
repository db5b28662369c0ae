"""A gateway with two flows, `hot` and `cold`, each in a slot of its own, whose rows take 2 ms of CPU time."""

from __future__ import annotations

from typing import Any

from tests.integration.rig import Gateway, Rig
from tests.integration.worlds import package

SLOW = """
import time
from edgert.flow.spec import OperatorSpec
from edgert.operators.base.logic import Emission, Logic


class Slow(Logic):
    def process(self, batch, source, now):
        end = time.thread_time() + 0.002 * len(batch.rows)
        while time.thread_time() < end:
            pass
        return [Emission(0, batch)]


SPEC = OperatorSpec("slow", "Takes 2 ms of CPU time per row.", logic=lambda build: Slow())
"""


def flow(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "operators": {
            "readings": {"type": "mqtt_source", "topic": f"{name}/{{source}}"},
            "slow": {"type": "slow", "input": "readings"},
            "out": {"type": "publish", "input": "slow", "topic": f"out/{name}/{{source}}"},
        },
    }


def two_slots(rig: Rig) -> Gateway:
    """Started, both slots run."""
    made = rig.gateway(pool={"slots": 2})
    made.env = package(rig.folder / "installed", "slow", SLOW)
    made.progress = lambda: int(2 * made.cpu_s)  # a start may take long on a busy machine
    made.start_ready()
    for name in ("hot", "cold"):
        assert rig.deploy(made, flow(name))["accepted"]
    made.wait(lambda s: all(slot["running"] and "rss_bytes" in slot for slot in s["slots"]), "both slots")
    return made
