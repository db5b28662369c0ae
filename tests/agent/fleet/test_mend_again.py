"""Work that was left and cannot be ended yet is tried again, not at each look: boards store a promise each time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from agent.fleet.mend import LOOK_S, RETRY_S, FleetMend
from edgert.core.errors import EdgertError
from tests.agent.migration.worlds import run_virtual


class Flows:
    """A flow on one board, which this agent coordinates."""

    def alive(self) -> list[str]:
        return ["a"]

    def concerned(self) -> bool:
        return True

    tellers = alive

    def forget_heard(self) -> None:
        pass

    def coordinates(self, flow: str) -> bool:
        return True

    def lock(self, flow: str) -> asyncio.Lock:
        return asyncio.Lock()

    async def parts(self, of: list[str] | None = None) -> dict[str, Any]:
        return {"a": {"f": {"assignment": {"in": ["a", -1]}, "plan": 1, "state": "running"}}}


class LeftFleet(FleetMend):
    """Has a flow with other parts than are remembered, and no majority."""

    def __init__(self) -> None:
        super().__init__(cast(Any, Flows()), cast(Any, SimpleNamespace()))
        self.tried: list[float] = []
        self.often = asyncio.Event()

    def _is_odd(self, *_: Any) -> bool:
        return True

    async def _settle(self, flow: str) -> None:
        self.tried.append(asyncio.get_running_loop().time())
        if len(self.tried) > 5:
            self.often.set()
        raise EdgertError("no majority")


def test_a_flow_that_cannot_be_settled_is_tried_again_after_half_a_minute() -> None:
    mend = LeftFleet()

    async def minutes() -> None:
        looking = asyncio.create_task(mend.run())
        await mend.often.wait()
        looking.cancel()

    run_virtual(minutes())
    pauses = [later - before for before, later in zip(mend.tried, mend.tried[1:], strict=False)]
    assert all(RETRY_S <= pause <= RETRY_S + LOOK_S for pause in pauses), pauses
