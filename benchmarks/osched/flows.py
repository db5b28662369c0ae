"""Twenty synthetic flows of five operators each, with costs and selectivities drawn once (as Lachesis §6.1, SYN).

Their operator `burn` comes as an installed package would: by an entry point.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

FLOWS: Final = 20
SEED: Final = 20
COST_US: Final = (100.0, 900.0)
"""CPU time of a row in one operator, drawn evenly."""
SELECTIVITY: Final = (0.8, 1.0)
BURN: Final = '''
import time
from edgert.flow.spec import OperatorSpec, Parameter
from edgert.operators.base.logic import Emission, Logic


class Burn(Logic):
    """Takes CPU time for each row, and lets a part of the rows through."""

    def __init__(self, cost_us, selectivity):
        super().__init__()
        self.cost_s, self.selectivity, self.owed = cost_us / 1e6, selectivity, 0.0

    def process(self, batch, source, now):
        end = time.thread_time() + self.cost_s * len(batch.rows)
        while time.thread_time() < end:
            pass
        kept = []
        for row in batch.rows:
            self.owed += self.selectivity
            if self.owed >= 1.0:
                self.owed -= 1.0
                kept.append(row)
        batch.rows[:] = kept
        return [Emission(0, batch)]


SPEC = OperatorSpec(
    "burn", "Takes CPU time.",
    parameters=(Parameter("cost_us", "number", "Per row."), Parameter("selectivity", "number", "Rows out per row in.")),
    logic=lambda build: Burn(build.node.parameters["cost_us"], build.node.parameters["selectivity"]),
)
'''


def install(folder: Path) -> None:
    """Put the package into a folder that PYTHONPATH will name."""
    info = folder / "burn-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: burn\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[edgert.operators]\nburn = burn_operator:SPEC\n", encoding="utf-8")
    (folder / "burn_operator.py").write_text(BURN, encoding="utf-8")


def flows() -> tuple[list[dict[str, Any]], float]:
    """The documents, and the CPU time that one message to each of them takes in all, s."""
    draw = random.Random(SEED)
    documents, total_s = [], 0.0
    for number in range(FLOWS):
        name, rows = f"syn-{number}", 1.0
        operators: dict[str, Any] = {"in": {"type": "mqtt_source", "topic": f"syn/{number}/{{source}}"}}
        before = "in"
        for step in range(3):
            cost, selectivity = draw.uniform(*COST_US), draw.uniform(*SELECTIVITY)
            operators[f"burn-{step}"] = {"type": "burn", "input": before, "cost_us": cost, "selectivity": selectivity}
            before, total_s, rows = f"burn-{step}", total_s + rows * cost / 1e6, rows * selectivity
        operators["out"] = {"type": "publish", "input": before, "topic": f"out/{number}"}
        documents.append({"name": name, "delivery": "at-least-once", "operators": operators})
    return documents, total_s
