"""The flows of this gateway whose plan is being changed, and their parts that stand still."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edgert.core.errors import EdgertError
from edgert.flow.plan import uncopied
from edgert.runtime.flow_run import FlowRun
from edgert.store.database import Database
from edgert.store.plan_change import Prepared
from edgert.store.state.records import StoredFlow

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
    """By this board's agent, which has lost the fleet: it goes on when the agent says so, not by itself."""

    def wait(self) -> None:
        """The part does not go on by itself any more."""
        if self.patience is not None:
            self.patience.cancel()
            self.patience = None


class PlanChanges:
    """Lives on the loop. `stored`: all flows as the database has them."""

    def __init__(self, gateway: str, stored: Mapping[str, StoredFlow]) -> None:
        self._gateway, self._stored = gateway, stored
        self.prepared: dict[str, Prepared] = {}
        """This gateway's parts of next plans."""
        self.stopped: dict[str, Stopped] = {}
        self.guests_wait = False
        """After a start guests stand still until the agent of this board has reached the fleet."""

    def load(self, database: Database) -> None:
        """Call this before flows are loaded."""
        self.prepared.update(database.prepared())
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
        return flow in self.prepared or (self.guests_wait and self.is_guest(self._stored[flow]))

    def check_free(self, flow: str) -> None:
        """Raises where the flow's plan is being changed: nothing else may change it meanwhile."""
        if flow in self.stopped or flow in self.prepared:
            raise EdgertError(f"the plan of flow {flow} is being changed; try again")
