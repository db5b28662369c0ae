"""Input of flows that reach no batch boundary, kept in the database instead of their state.

An operator hangs or is very slow, or a slot is away. The input goes to the database, so that the flow delays no other
flow's acknowledgements. The queues of a running flow hold no more than the database does, so input that has no room in
the database has left the queues, too. The queues of a slot that is away may be lost: then the database drops nothing,
and the broker keeps the input for which there is no room.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from edgert.core.clock import Clock
from edgert.runtime.checkpoint.packing import pack_queues
from edgert.runtime.flow_run import FlowRun
from edgert.store.state.records import Spill
from gateway.hosts.host import Feeding, Host

log = logging.getLogger(__name__)

PATIENCE_S = 5.0
"""Seconds without a checkpoint that was due, after which a flow is stuck."""
TRIED_S = 10.0
"""Seconds between two tries of a checkpoint of a stuck flow, at first. In slots a try cannot be known to be in vain:
each delays the other flows' checkpoints by two seconds. A try that fails in an operator leaves the deltas of the other
operators in memory."""
TRIED_MOST_S = 600.0
"""Seconds between two tries of a flow that has been stuck for long."""


@dataclass(slots=True)
class _Stuck:
    since: float
    """Monotonic seconds of the first checkpoint for which the flow reached no batch boundary."""
    next_try: float = 0.0
    messages: int = 0
    """Messages spilled so far."""


class InputSpill:
    """On the store thread."""

    def __init__(self, host: Host, clock: Clock, room: Callable[[str], int]) -> None:
        """`room`: bytes of a flow's input that the database can take without dropping others."""
        self._host, self._clock, self._room = host, clock, room
        self._stuck: dict[FlowRun, _Stuck] = {}
        self._tried = False
        """True if the last try was of a stuck flow."""

    def is_stuck(self, run: FlowRun) -> bool:
        """True if the flow's input is spilled to the database."""
        stuck = self._stuck.get(run)
        return stuck is not None and (self._is_late(stuck) or not self._host.checkpoints.is_up(run))

    def failed_last(self, run: FlowRun) -> bool:
        """True if the last checkpoint of the flow was tried in vain, or could not be tried."""
        return run in self._stuck

    def _is_late(self, stuck: _Stuck) -> bool:
        return self._clock.monotonic() - stuck.since >= PATIENCE_S

    def messages(self, run: FlowRun) -> int:
        """Number of the flow's messages that were spilled to the database since its last checkpoint."""
        stuck = self._stuck.get(run)
        return stuck.messages if stuck else 0

    def may_try(self, run: FlowRun) -> bool:
        """True if a checkpoint of the flow should be tried now. Of stuck flows one is tried at a time, since each try
        may delay the other flows."""
        stuck = self._stuck.get(run)
        if (
            stuck is None or not self._is_late(stuck) or not self._host.checkpoints.is_up(run)
        ):  # this try delays no other flow
            return True
        if self._tried or self._clock.monotonic() < stuck.next_try:
            return False
        self._tried = True
        return True

    def failed(self, run: FlowRun, why: str = "it reached no batch boundary in time") -> None:
        """Records that a checkpoint of the flow was tried in vain."""
        now, is_up = self._clock.monotonic(), self._host.checkpoints.is_up(run)
        stuck = self._stuck.get(run)
        if stuck is None:
            self._stuck[run] = _Stuck(now)
            why = why if is_up else "a slot of it is away"
            log.warning("flow %s has no checkpoint: %s; it is tried again", run.flow.name, why)
        elif not is_up:
            stuck.since, stuck.next_try = now, 0.0
        elif self._is_late(stuck):
            stuck.next_try = now + min(max(TRIED_S, (now - stuck.since) / 4), TRIED_MOST_S)

    def succeeded(self, run: FlowRun) -> None:
        """Notes that the flow reached a batch boundary."""
        stuck = self._stuck.pop(run, None)
        if stuck and stuck.messages:
            log.info("flow %s is stuck no more; its state covers the %d messages", run.flow.name, stuck.messages)

    def begin(self, runs: Collection[FlowRun]) -> None:
        """Begins a checkpoint of some of `runs`, which are all runs of the gateway."""
        self._tried = False
        self._stuck = {run: stuck for run, stuck in self._stuck.items() if run in runs}

    def spill(self, run: FlowRun, feeding: Feeding) -> Spill | None:
        """Returns the input fed to a stuck flow that is neither in a checkpoint nor in the database. None if there is
        none, or if the broker must keep it."""
        stuck, name, is_up = self._stuck.get(run), run.flow.name, self._host.checkpoints.is_up(run)
        if stuck is None or (is_up and not self._is_late(stuck)):
            return None
        at, queues = self._host.checkpoints.spill(run, feeding)
        batches = [entry.batch for entries in queues.values() for entry in entries]
        size = sum(batch.size for batch in batches)
        if not batches or not (is_up or size <= self._room(name)):
            return None
        return Spill(name, at, pack_queues(queues), size, sum(map(len, batches)))

    def spilled(self, run: FlowRun, spill: Spill) -> None:
        """Records that the spilled input is in the database."""
        self._host.checkpoints.spilled(run)
        stuck = self._stuck[run]
        if not stuck.messages:
            late = "an operator does not end its turn, or its state cannot be taken"
            log.warning(
                "flow %s is stuck: %s. Its input goes to the database, and is fed again if it begins anew before "
                "that is over", run.flow.name, late if self._host.checkpoints.is_up(run) else "a slot of it is away",
            )  # fmt: skip
        stuck.messages += spill.messages
