"""What a choice costs: a policy alone, told of what a busy pool tells it."""

from __future__ import annotations

import operator
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Literal

from edgert.scheduling.lazy_heap import May
from edgert.scheduling.policies import POLICIES

CHOICES: Final = 20_000
FED: Final = 5
"""Instances that get rows between two choices."""


PassedOver = Literal["none", "the first", "nine in ten"]
"""Whom the thread that asks may not take, as one that is lent to the pool may not take an operator that waits."""


def cost_us(
    policy: str,
    instances: int,
    passed_over: PassedOver = "none",
    timer: Callable[[], float] = time.perf_counter,
    choices: int = CHOICES,
) -> float:
    """Of one `choose`, µs by the `timer` (s), with four in five of the instances having rows, in a chain."""
    draw = random.Random(1)
    made = POLICIES[policy](draw.random)
    for number in range(instances):
        made.add(number)
    made.connect({number: [number + 1] if number + 1 < instances else [] for number in range(instances)})
    rows = [0] * instances
    spent = 0.0
    for turn in range(choices):
        for _ in range(FED):
            number = draw.randrange(instances)
            if rows[number] < 1_000:
                made.rows_added(number, 50)
                rows[number] += 50
        may: May | None = None
        if passed_over == "the first":
            may = partial(operator.ne, made.choose(turn * 1e-4))
        elif passed_over == "nine in ten":
            may = _one_in_ten
        began = timer()
        chosen = made.choose(turn * 1e-4, may)
        spent += timer() - began
        if chosen is not None:
            made.busy(chosen)
            made.rows_taken(chosen, rows[chosen])
            rows[chosen] = 0
            made.free(chosen)
    return spent / choices * 1e6 - _timer_us(timer, choices)


def _one_in_ten(instance: int) -> bool:
    return not instance % 10


def _timer_us(timer: Callable[[], float], choices: int) -> float:
    """What it costs to look at the clock twice, which is not the policy's."""
    spent = 0.0
    for _ in range(choices):
        began = timer()
        spent += timer() - began
    return spent / choices * 1e6
