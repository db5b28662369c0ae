"""A flow in slots, copied into the daemon's process to be brought to its end. It does not matter whether slots live."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from edgert.core.clock import Clock
from edgert.flow.spec import Registry
from edgert.operators.base.logic import Now
from edgert.runtime.checkpoint.packing import pack_queues, pack_state
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.queue import Entry
from edgert.runtime.run_out import NO_HEIRS, Heirs, Said, run_out
from gateway.hosts.host import Recovery
from gateway.hosts.slotted_flow import SlottedFlow

log = logging.getLogger(__name__)


class OfflineRuns:
    """Makes them; each lives for one call."""

    def __init__(self, registry: Registry, clock: Clock, recovery: Recovery) -> None:
        self._registry, self._clock, self._recovery = registry, clock, recovery

    def run_out(self, hosted: SlottedFlow, heirs: Heirs = NO_HEIRS) -> Iterator[Said]:
        """See `Checkpoints.run_out`: from the database and what was captured when it was halted."""
        run = hosted.run
        deltas, whole = run.pending_state()
        blobs = [] if whole else self._recovery.read_checkpoint(run.flow.name)[0]
        local = self._copy(run)
        now = self._now()
        local.restore([*blobs, *map(pack_state, deltas)], pack_queues(run.pending[-1].queues), now)
        for fed in hosted.since_mark():
            if fed.batch is not None:
                local.instances[fed.instance.name].queue.append(Entry(fed.source, fed.batch, producer=fed.producer))
        return self._end(hosted, local, now, heirs)

    @staticmethod
    def _end(hosted: SlottedFlow, local: FlowRun, now: Now, heirs: Heirs) -> Iterator[Said]:
        for instance, messages in run_out(local, now, heirs):
            # by the run's own instances: what becomes of their messages is counted there
            yield hosted.run.instances[instance.name], messages
        if lost := hosted.ends(local):
            log.warning("flow %s ends without %d messages that were not kept", hosted.run.flow.name, lost)

    def _copy(self, run: FlowRun) -> FlowRun:
        return FlowRun(
            run.flow, self._registry, run.version, run.epoch, run.progress, run.fusion, run.fission, run.gateway,
            run.plan.assignment(), run.plan.number,
        )  # fmt: skip

    def _now(self) -> Now:
        return Now(self._clock.monotonic(), self._clock.wall())
