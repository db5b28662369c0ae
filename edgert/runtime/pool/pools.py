"""The pool that the settings ask for."""

from __future__ import annotations

import random
from typing import Final

from edgert.core.clock import Clock
from edgert.runtime.pool.pool import Pool, Send
from edgert.runtime.pool.thread_per_operator import ThreadPerInstance
from edgert.scheduling.consumption import CONSUMPTIONS
from edgert.scheduling.policies import POLICIES

OWPOA: Final = "owpoa"
"""In the place of a policy: a thread per instance, and the OS decides."""


def make_pool(clock: Clock, *, policy: str, consumption: str, consumption_rows: int, workers: int, send: Send) -> Pool:
    """The arguments are as in the settings (`edgert.core.settings.gateway.Pool`)."""
    take = CONSUMPTIONS[consumption](consumption_rows)
    if policy == OWPOA:
        return ThreadPerInstance(clock, consumption=take, send=send)
    return Pool(clock, workers=workers, policy=POLICIES[policy](random.random), consumption=take, send=send)
