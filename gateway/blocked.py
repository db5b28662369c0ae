"""Flows that come to no batch boundary, because an operator is blocked or takes very long: their input goes to the
database instead of their state, so that they hold up no other flow's acknowledgements."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from edgert.runtime.flow_run import FlowRun
from edgert.runtime.state import pack_queues
from edgert.store.records import Spill
from gateway.hosts import Host, Position

log = logging.getLogger(__name__)

PATIENCE_S = 5.0
"""After so long without a checkpoint that should have been, a flow counts as blocked."""
TRIED_S = 10.0
"""How often one is tried of a flow that is, at first: where nobody can tell that it is in vain (in slots), each try
holds up the other flows' checkpoints for two seconds; and one that fails since an operator cannot say what has changed
leaves what the others have said in memory."""
TRIED_MOST_S = 600.0
"""After long."""


@dataclass(slots=True)
class _Stuck:
    since: float
    next_try: float = 0.0
    messages: int = 0
    """Spilled so far."""


class Blocked:
    """On the store thread; `monotonic` is the gateway's clock."""

    def __init__(self, host: Host, monotonic: Callable[[], float]) -> None:
        self._host, self._monotonic = host, monotonic
        self._stuck: dict[FlowRun, _Stuck] = {}
        self._tried = False
        """Whether it was the turn of one that is blocked."""

    def is_blocked(self, run: FlowRun) -> bool:
        """Whether its input goes to the database."""
        return self.time_s(run) >= PATIENCE_S

    def time_s(self, run: FlowRun) -> float:
        """For how long it has come to no checkpoint."""
        stuck = self._stuck.get(run)
        return self._monotonic() - stuck.since if stuck else 0.0

    def messages(self, run: FlowRun) -> int:
        """How many of its input are in the database since its last checkpoint."""
        stuck = self._stuck.get(run)
        return stuck.messages if stuck else 0

    def may_try(self, run: FlowRun) -> bool:
        """Whether a checkpoint should be tried now: of those that are blocked, of one at a time, since each try may
        hold up the other flows."""
        stuck = self._stuck.get(run)
        if stuck is None or not self.is_blocked(run):
            return True
        if self._tried or self._monotonic() < stuck.next_try:
            return False
        self._tried = True
        return True

    def failed(self, run: FlowRun, why: str = "it reached no batch boundary in time") -> None:
        """A checkpoint of it was tried in vain."""
        now = self._monotonic()
        stuck = self._stuck.get(run)
        if stuck is None:
            self._stuck[run] = _Stuck(now)
            log.warning("flow %s has no checkpoint: %s; it is tried again", run.flow.name, why)
        elif now - stuck.since >= PATIENCE_S:
            stuck.next_try = now + min(max(TRIED_S, (now - stuck.since) / 4), TRIED_MOST_S)

    def succeeded(self, run: FlowRun) -> None:
        """It came to a batch boundary."""
        stuck = self._stuck.pop(run, None)
        if stuck and stuck.messages:
            log.info("flow %s is blocked no more; its state covers the %d messages", run.flow.name, stuck.messages)

    def begin(self, runs: Collection[FlowRun]) -> None:
        """A checkpoint of some of `runs` begins, which are all that there are."""
        self._tried = False
        self._stuck = {run: stuck for run, stuck in self._stuck.items() if run in runs}

    def spill(self, run: FlowRun, position: Position) -> Spill | None:
        """What was fed to a blocked flow and is neither in a checkpoint nor in the database; None if nothing was."""
        if not self.is_blocked(run):
            return None
        at, queues = self._host.spill(run, position)
        batches = [entry.batch for entries in queues.values() for entry in entries]
        if not batches:
            return None
        messages = sum(map(len, batches))
        return Spill(run.flow.name, at, pack_queues(queues), sum(batch.size for batch in batches), messages)

    def spilled(self, run: FlowRun, spill: Spill) -> None:
        """The database has it."""
        self._host.spilled(run)
        stuck = self._stuck[run]
        if not stuck.messages:
            log.warning(
                "flow %s is blocked: an operator does not end its turn, or its state cannot be taken. Its input goes "
                "to the database, and is fed again if the gateway ends before that is over", run.flow.name,
            )  # fmt: skip
        stuck.messages += spill.messages
