"""What a choice costs: a policy alone, told of what a busy pool tells it."""

from __future__ import annotations

import operator
import random
import time
from functools import partial
from typing import Final

from edgert.scheduling.policies import POLICIES

CHOICES: Final = 20_000
FED: Final = 5
"""Instances that get rows between two choices."""


def cost_us(policy: str, instances: int, *, passed_over: bool = False) -> float:
    """Of one `choose`, µs, with four in five of the instances having rows, in a chain. `passed_over`: whoever asks may
    not take the first that there is, as a thread that is lent to the pool may not take an operator that waits."""
    draw = random.Random(1)
    made = POLICIES[policy](draw.random)
    for number in range(instances):
        made.add(number)
    made.connect({number: [number + 1] if number + 1 < instances else [] for number in range(instances)})
    rows = [0] * instances
    spent = 0.0
    timer = time.perf_counter
    for turn in range(CHOICES):
        for _ in range(FED):
            number = draw.randrange(instances)
            if rows[number] < 1_000:
                made.rows_added(number, 50)
                rows[number] += 50
        may = partial(operator.ne, made.choose(turn * 1e-4)) if passed_over else None
        began = timer()
        chosen = made.choose(turn * 1e-4, may)
        spent += timer() - began
        if chosen is not None:
            made.busy(chosen)
            made.rows_taken(chosen, rows[chosen])
            rows[chosen] = 0
            made.free(chosen)
    return spent / CHOICES * 1e6 - _timer_us()


def _timer_us() -> float:
    """What it costs to look at the clock twice, which is not the policy's."""
    spent = 0.0
    for _ in range(CHOICES):
        began = time.perf_counter()
        spent += time.perf_counter() - began
    return spent / CHOICES * 1e6
