"""Parts of flows that stand still: while their plan is changed, or while this board is without its fleet."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from edgert.core.errors import EdgertError, show
from edgert.flow.part_states import PartEvent, PartState
from edgert.runtime.flow_run import FlowRun
from gateway.flows.flows import Flows
from gateway.flows.precopy import Precopy
from gateway.hosts.host import Host
from gateway.registry.plan_changes import GUESTS_WAIT, Stopped

if TYPE_CHECKING:
    from gateway.links.flow_links import FlowLinks  # which costs memory, so only where it is wanted

log = logging.getLogger(__name__)

PATIENCE_S: Final = 60.0


class StoppedParts:
    """Lives on the loop. `links` is None if links are off."""

    def __init__(self, flows: Flows, host: Host, precopy: Precopy, links: FlowLinks | None) -> None:
        self._flows, self._host, self._precopy, self._links = flows, host, precopy, links
        self._changes = flows.flow_registry.plan_changes
        self.by_flow = self._changes.stopped
        self.patience_s = PATIENCE_S
        """A part that has nothing prepared goes on after so long without the coordinator's next word."""

    async def let_guests_wait(self) -> None:
        """This board has an agent that says after each start whether its guests may go on."""
        if not self._changes.guests_wait:
            registry = self._flows.flow_registry
            await registry.store(lambda: registry.database.set_meta(GUESTS_WAIT, 1))
            self._changes.guests_wait = True

    def loaded(self, run: FlowRun, *, suspended: bool) -> None:
        """Records a loaded flow that a start does not let run."""
        name = run.flow.name
        run.ended = True
        self._hold_links(name)  # the next plan has what comes from other gateways by the present one
        self.by_flow[name] = Stopped(run, time.monotonic(), suspended=suspended)
        if suspended:
            log.info(
                "flow %s runs here for other boards: it waits until this board's agent has reached its fleet", name
            )

    def __getitem__(self, flow: str) -> Stopped:
        stopped = self.by_flow.get(flow)
        if stopped is None:
            raise EdgertError(f"expected a flow that stands still here, got {show(flow)}")
        return stopped

    async def stop(self, run: FlowRun) -> Stopped:
        """The part stands still at a committed checkpoint."""
        flow = run.flow.name
        self._hold_links(flow)
        try:
            await self._flows.plans.stop_for_plan(run)
        except BaseException:
            self._release_links(flow)
            raise
        stopped = self.by_flow[flow] = Stopped(run, run.stands_since)
        return stopped

    def have_patience(self, flow: str) -> None:
        """The part goes on by itself after `patience_s`."""
        stopped = self.by_flow[flow]
        stopped.patience = asyncio.get_running_loop().call_later(self.patience_s, self._impatient, flow)

    def _impatient(self, flow: str) -> None:
        _, after = self._changes.step(flow, PartEvent.PATIENCE_ENDS)
        if after is PartState.RUNNING:
            log.warning("flow %s goes on: its coordinator said nothing for %.0f s", flow, self.patience_s)
            self.go_on(flow)

    @contextmanager
    def not_going_on(self, flow: str) -> Iterator[None]:
        """Within the context a part that stands still does not go on by itself: what is prepared meanwhile, which may
        take long on a busy board, is what it has now. Where that fails its patience begins anew."""
        stopped = self.by_flow.get(flow)
        if stopped is not None:
            stopped.wait()
        try:
            yield
        except BaseException:
            if stopped is not None:
                self.have_patience(flow)
            raise

    def go_on(self, flow: str) -> None:
        """The part goes on by the plan that it had."""
        run = self[flow].run
        run.ended = False
        self._host.go_on(run)
        self.forget(flow)

    def forget(self, flow: str) -> None:
        """The flow runs, by whatever plan: it takes what comes from other gateways."""
        stopped = self.by_flow.pop(flow, None)
        if stopped is not None:
            stopped.wait()
        self._precopy.forget(flow)
        self._release_links(flow)

    def _hold_links(self, flow: str) -> None:
        if self._links is not None:
            self._links.hold(flow)

    def _release_links(self, flow: str) -> None:
        if self._links is not None:
            self._links.release(flow)
