"""The baseline: an application's operator functions in a bare loop, with nothing of the engine around them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from edgert.core.batch import RawBatch
from edgert.operators.base.logic import Now
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.edges import Target


def operators_of(run: FlowRun, told: list[int]) -> Callable[[RawBatch], None]:
    """The same operator functions (chains compiled to one function, as the engine has them) on the same rows in order,
    with nothing of the engine around them."""
    steps = []
    for instance in run.all:
        targets: dict[int, list[tuple[str, int]]] = {}
        for port, outputs in instance.edges.outputs.items():
            for target in outputs:
                assert isinstance(target, Target)
                targets.setdefault(port, []).append((target.instance.name, target.source))
        steps.append((instance.name, instance.logic, targets))
    ((_, (first,)),) = run.sources()

    def step(batch: RawBatch) -> None:
        now = Now(time.monotonic(), batch.wall)
        waiting: dict[str, list[Any]] = {name: [] for name, _, _ in steps}
        waiting[first.name].append((0, batch))
        for name, logic, targets in steps:
            for source, entry in waiting.pop(name):
                for port, emitted in logic.process(entry, source, now):
                    for target, at in targets.get(port, ()):
                        waiting[target].append((at, emitted))
            if logic.messages:
                told[0] += len(logic.messages)
                logic.messages = []

    return step
