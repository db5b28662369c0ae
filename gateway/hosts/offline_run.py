"""A flow in slots, copied into the daemon's process: to bring a checkpoint over to other instances, or a flow that was
halted to its end. No slot takes part in that, so it does not matter whether they live."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from edgert.core.clock import Clock
from edgert.flow.physical import Fusion
from edgert.flow.spec import Registry
from edgert.operators.base.logic import Now
from edgert.runtime.checkpoint.packing import pack_queues, pack_state
from edgert.runtime.drain import Said, drain
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.queue import Entry
from gateway.hosts.host import Recovery, Send
from gateway.hosts.slotted_flow import Hosted

log = logging.getLogger(__name__)


class LocalCopies:
    """Makes them; each lives for one call."""

    def __init__(
        self, registry: Registry, fusion: Fusion, fission: bool, clock: Clock, *, send: Send, recovery: Recovery
    ) -> None:
        self._registry, self._fusion, self._fission, self._clock = registry, fusion, fission, clock
        self._send, self._recovery = send, recovery

    def adapt(self, hosted: Hosted, blobs: Sequence[bytes], queue: bytes) -> tuple[Sequence[bytes], bytes]:
        """A checkpoint as the slots can begin with it. One that was made while operators were split, and are not now
        (or the other way round), is brought over here; what that gives goes with the next checkpoint."""
        run = hosted.run
        if not run.moved(blobs, queue):
            return blobs, queue
        local = self._copy(run)
        local.restore(blobs, queue, self._now())
        for instance in local.all:
            if messages := instance.take_messages():
                self._send(run.instances[instance.name], messages)
        run.taken += local.taken
        hosted.rows += [row for ship in local.ships for row in ship.take()]
        return [pack_state(state) for state in local.taken], b""

    def drain(self, hosted: Hosted) -> Iterator[Said]:
        """See `Host.drain`: from the database and what was captured when it was halted."""
        run = hosted.run
        deltas, whole = run.pending_state()
        blobs = [] if whole else self._recovery.read_checkpoint(run.flow.name)[0]
        local = self._copy(run)
        now = self._now()
        local.restore([*blobs, *map(pack_state, deltas)], pack_queues(run.pending[-1].queues), now)
        for fed in hosted.since_mark():
            if fed.batch is not None:
                local.instances[fed.instance.name].queue.append(Entry(fed.source, fed.batch, producer=fed.producer))
        return self._end(hosted, local, now)

    @staticmethod
    def _end(hosted: Hosted, local: FlowRun, now: Now) -> Iterator[Said]:
        for instance, messages in drain(local, now):
            # by the run's own instances: what becomes of their messages is counted there
            yield hosted.run.instances[instance.name], messages
        if lost := hosted.ends(local):
            log.warning("flow %s ends without %d messages that were not kept", hosted.run.flow.name, lost)

    def _copy(self, run: FlowRun) -> FlowRun:
        return FlowRun(
            run.flow, self._registry, run.version, run.epoch, run.progress, self._fusion, self._fission, run.gateway,
            run.plan.assignment(), run.plan.number,
        )  # fmt: skip

    def _now(self) -> Now:
        return Now(self._clock.monotonic(), self._clock.wall())
