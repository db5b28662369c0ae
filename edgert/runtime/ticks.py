"""Work that is due four times a second for the sources of a flow, wherever they run. Idle sources cost no turn."""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import Final

from edgert.core.batch import RawBatch
from edgert.core.clock import Clock
from edgert.operators.sources.source import Source
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.pool.pool import Pool

log = logging.getLogger(__name__)

TICK_S: Final = 0.25
IDLE_TICK_S: Final = 1.0
"""Where time changes nothing: a source that hears something is looked at so late at first, before any time-out."""


def tick(run: FlowRun, pool: Pool, clock: Clock, mine: Container[str] | None = None) -> bool:
    """Lets time pass for sources that hear nothing (their devices' time-outs), and brings some of the malformed
    payloads to the log; of all of the flow's instances, or those in `mine`. False where time changes nothing now."""
    mine, due = run.mine if mine is None else mine, False
    for name, stage in run.stages.items():
        if isinstance(stage.logic, Source) and (mine is None or stage.instance.name in mine):
            if stage.logic.is_due(clock.monotonic()):
                due = True
                if not stage.instance.queue.rows:
                    pool.put([(stage.instance, 0, RawBatch([], [], clock.monotonic(), clock.wall()))])
            _log_samples(run.flow.name, name, stage.logic, clock.monotonic())
    return due


def log_malformed(run: FlowRun, clock: Clock) -> None:
    """Brings malformed payloads since the last tick to the log; to be called when the run gets no other tick."""
    for name, stage in run.stages.items():
        if isinstance(stage.logic, Source):
            _log_samples(run.flow.name, name, stage.logic, clock.monotonic())


def _log_samples(flow: str, operator: str, source: Source, now: float) -> None:
    """The first malformed payload of a kind, and then their number once a minute."""
    taken, source.bad_payloads = source.bad_payloads, {}
    for kind, (count, sample) in taken.items():
        first = source.log_sampling.note(kind, count, str(sample), now)
        if first is not None:
            log.warning("flow %s, %s: malformed payload %s", flow, operator, first)
    for kind, count, seconds, newest in source.log_sampling.due(now):
        log.warning(
            "flow %s, %s: %d more malformed payloads (%s) in %.0f s; the newest %s",
            flow, operator, count, kind, seconds, newest,
        )  # fmt: skip
