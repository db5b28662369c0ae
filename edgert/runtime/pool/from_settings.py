"""The pool that the settings ask for."""

from __future__ import annotations

import random

from edgert.core.clock import Clock
from edgert.runtime.pool.pool import Pool, Send
from edgert.scheduling.consumption import CONSUMPTIONS
from edgert.scheduling.policies import POLICIES


def make_pool(clock: Clock, *, policy: str, consumption: str, consumption_rows: int, workers: int, send: Send) -> Pool:
    """The arguments are as in the settings (`edgert.core.settings.gateway.Pool`)."""
    take = CONSUMPTIONS[consumption](consumption_rows)
    return Pool(clock, workers=workers, policy=POLICIES[policy](random.random), consumption=take, send=send)
