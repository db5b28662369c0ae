"""What is looked at four times a second for the sources of a flow, wherever they run. Idle ones cost no turn."""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import Final

from edgert.core.batch import RawBatch
from edgert.core.clock import Clock
from edgert.operators.source import Source
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.pool import Pool

log = logging.getLogger(__name__)

TICK_S: Final = 0.25


def tick(run: FlowRun, pool: Pool, clock: Clock, mine: Container[str] | None = None) -> None:
    """Lets time pass for sources that hear nothing (their devices' time-outs), and brings some of the malformed
    payloads to the log; of all of the flow's instances, or those in `mine`."""
    mine = run.mine if mine is None else mine
    for name, place in run.places.items():
        if isinstance(place.logic, Source) and (mine is None or place.instance.name in mine):
            if place.logic.is_due(clock.monotonic()) and not place.instance.queue.entries:
                pool.put([(place.instance, 0, RawBatch([], [], clock.monotonic(), clock.wall()))])
            _log_samples(run.flow.name, name, place.logic)


def _log_samples(flow: str, operator: str, source: Source) -> None:
    samples, source.samples = source.samples, []
    for bad in samples[:1]:
        log.warning(
            "flow %s, %s: malformed payload on %r (%d so far): %s; it begins %r",
            flow, operator, bad.topic, source.drops["bad_payload"], bad.reason, bad.beginning,
        )  # fmt: skip
