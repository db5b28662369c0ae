"""The flows of this gateway whose plan is being changed, and their parts that stand still."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from edgert.flow.part_states import PartEvent, PartState, after, event_of, state_of
from edgert.flow.plan import uncopied
from edgert.runtime.flow_run import FlowRun
from edgert.store import plan_change
from edgert.store.database import Database
from edgert.store.plan_change import Prepared
from edgert.store.state.records import StoredFlow

log = logging.getLogger(__name__)
GUESTS_WAIT: Final = "guests_wait"
"""In the database's table `meta`."""


@dataclass(slots=True)
class Stopped:
    """A part that stands still."""

    run: FlowRun
    began: float
    """Monotonic seconds."""
    patience: asyncio.TimerHandle | None = None
    """Lets the part go on by itself, unless its coordinator or its agent says when."""
    suspended: bool = False
    """True while this board's agent, which has lost the fleet, has suspended the flow: it goes on when the agent says
    so, not by itself."""

    def wait(self) -> None:
        """The part does not go on by itself any more."""
        if self.patience is not None:
            self.patience.cancel()
            self.patience = None


class Committed(NamedTuple):
    """A part that is in the database as the flow's plan, and does not run yet."""

    stored: StoredFlow
    run: FlowRun
    old: FlowRun | None


class PlanChanges:
    """Lives on the loop. `runs`: the running flows; `stored`: all flows as the database has them."""

    def __init__(self, gateway: str, runs: Mapping[str, FlowRun], stored: Mapping[str, StoredFlow]) -> None:
        self._gateway, self._runs, self._stored = gateway, runs, stored
        self.prepared: dict[str, Prepared] = {}
        """This gateway's parts of next plans."""
        self.damaged: set[str] = set()
        """Flows of which that part cannot be read any more: only a coordinator knows whether they may go on."""
        self.committed: dict[str, Committed] = {}
        """Prepared parts whose commit is under way, or failed between the database and the flow: it is asked for again
        then, and must not be written again."""
        self.stopped: dict[str, Stopped] = {}
        self.guests_wait = False
        """After a start guests stand still until the agent of this board has reached the fleet."""

    def load(self, database: Database) -> None:
        """Call this before flows are loaded."""
        for flow, found in database.read(plan_change.prepared).items():
            if isinstance(found, Prepared):
                self.prepared[flow] = found
                continue
            self.damaged.add(flow)
            log.error(
                "flow %s: its part of the next plan, which waited for the coordinator's word, is lost: %s. What runs"
                " here by the present plan stands still. It goes on when the coordinator undoes the change; where other"
                " boards run by the next plan already, remove the flow and deploy it anew", flow, found,
            )  # fmt: skip
        self.guests_wait = bool(database.meta(GUESTS_WAIT, 0))

    def is_guest(self, stored: StoredFlow) -> bool:
        """True for a part of a flow whose sources are on other boards: no input is lost where it stands still."""
        operators = stored.document["operators"]
        here = [uncopied(copy)[0] for copy, at in stored.assignment.items() if at.gateway == self._gateway]
        return bool(stored.assignment) and all(
            "input" in operators[name] or "inputs" in operators[name] for name in here
        )

    def stands(self, flow: str) -> bool:
        """True if the flow's part of the next plan is prepared, or it is a guest that waits: a start must not let it
        run."""
        return flow in self.prepared or flow in self.damaged or (self.guests_wait and self.is_guest(self._stored[flow]))

    def state(self, flow: str) -> PartState:
        """The state of this gateway's part of a flow."""
        stopped = self.stopped.get(flow)
        return state_of(
            part=flow in self._runs, stands=stopped is not None, suspended=stopped is not None and stopped.suspended,
            prepared=flow in self.prepared, committed=flow in self.committed,
        )  # fmt: skip

    def step(self, flow: str, event: PartEvent, plan: int = 0) -> tuple[PartState, PartState]:
        """The states of the part before and after an event, by the table; the caller makes it so. Raises `EdgertError`
        where the state does not allow it. `plan`: the one that a coordinator asks for."""
        prepared = self.prepared[flow].plan if flow in self.prepared else None
        runs_by = self._runs[flow].plan.number if flow in self._runs else None
        before = self.state(flow)
        return before, after(flow, before, event_of(event, plan, prepared, runs_by), plan, prepared)

    def check_free(self, flow: str) -> None:
        """Raises where the flow's plan is being changed: nothing else may change it meanwhile."""
        self.step(flow, PartEvent.CHANGE)
