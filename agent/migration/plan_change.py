"""The change of a flow's plan across gateways, as its coordinator makes it: stop, export, prepare, commit.

Each step is done on all gateways of the old and the new plan before the next one begins. Until all have prepared, any
failure is answered by an abort everywhere, and the flow goes on by its old plan; after that there is only forward. A
coordinator that takes over reads from what the parts say which of the two it is (`decision`). The gateways' side, and
what they keep across a crash, is `gateway.flows.parts`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from edgert.core.errors import EdgertError

Ask = Callable[[str, str, Mapping[str, Any]], Awaitable[Any]]
"""(gateway, verb, arguments) -> result. Raises `EdgertError`."""
On = Mapping[str, str]
"""Operator copy -> gateway."""
NO_PLAN: Final = 0
"""Undoes a stop only: what a part has prepared then is another coordinator's, which may have decided for it."""
COMMIT_TRIES: Final = 10
RETRY_S: Final = 1.0


class PlanChangeError(EdgertError):
    """The plan was not changed: the flow goes on as before."""


class UnfinishedError(EdgertError):
    """The plan is being changed, and a gateway that takes part does not answer. The coordinator goes on later."""


@dataclass(frozen=True, slots=True)
class Change:
    """From one plan of a flow to the next."""

    document: Mapping[str, Any]
    before: On
    after: On
    plan: int
    """Number of the next plan."""
    fence: int
    rules: Mapping[str, Any] = field(default_factory=dict)
    """Of the flow's placement, for the gateways to keep."""

    @property
    def flow(self) -> str:
        return str(self.document["name"])

    @property
    def gateways(self) -> list[str]:
        """Those that take part."""
        return sorted({*self.before.values(), *self.after.values()})


async def change_plan(change: Change, ask: Ask) -> float:
    """Makes the change; returns how long the flow stood still, seconds. Raises `PlanChangeError` where it was undone,
    `UnfinishedError` where it is decided and not everywhere done."""
    plan = NO_PLAN
    try:
        exports = await _stop(change, ask)
        plan = change.plan
        await _prepare(change, exports, ask)
    except EdgertError as error:
        await abort(change.flow, change.gateways, plan, change.fence, ask)
        raise PlanChangeError(f"flow {change.flow} stays where it is: {error}") from error
    return await commit(change.flow, change.gateways, set(change.after.values()), change.plan, change.fence, ask)


async def _stop(change: Change, ask: Ask) -> list[Any]:
    """Stops the flow at all gateways of the present plan. Returns their exports."""
    told = {"flow": change.flow, "fence": change.fence}
    givers = sorted(set(change.before.values()))
    stopped = dict(zip(givers, await asyncio.gather(*(ask(g, "part.stop", told) for g in givers)), strict=True))

    async def export(giver: str) -> Any:
        leaving = [o for o, at in change.before.items() if at == giver and change.after[o] != giver]
        taken = {other: one["links"][giver] for other, one in stopped.items() if giver in one["links"]}
        return await ask(giver, "part.export", {"flow": change.flow, "operators": leaving, "taken": taken})

    return await asyncio.gather(*map(export, givers))


async def _prepare(change: Change, exports: list[Any], ask: Ask) -> None:
    part = {
        "document": change.document,
        "assignment": {operator: [gateway, -1] for operator, gateway in change.after.items()},
        "plan": change.plan,
        "imports": exports,
        "rules": change.rules,
        "fence": change.fence,
    }
    await asyncio.gather(*(ask(gateway, "part.prepare", part) for gateway in change.gateways))


async def commit(flow: str, gateways: Iterable[str], staying: Container[str], plan: int, fence: int, ask: Ask) -> float:
    """Has all gateways run by the plan that they have prepared. Those without an operator in it come after `staying`,
    those with one: they have no part of the flow then, and cannot tell the next coordinator that it was decided. Raises
    `UnfinishedError`."""
    told = {"flow": flow, "plan": plan, "fence": fence}

    async def one(gateway: str) -> float:
        for tried in range(1, COMMIT_TRIES + 1):
            try:
                return float((await ask(gateway, "part.commit", told))["pause_s"])
            except EdgertError as error:
                if tried == COMMIT_TRIES:
                    raise UnfinishedError(f"flow {flow}: {gateway} does not answer: {error}") from error
                await asyncio.sleep(RETRY_S)
        raise AssertionError("unreachable")

    names = list(gateways)
    pauses = await asyncio.gather(*(one(name) for name in names if name in staying))
    pauses += await asyncio.gather(*(one(name) for name in names if name not in staying))
    return max(pauses)


async def abort(flow: str, gateways: Iterable[str], plan: int, fence: int, ask: Ask) -> None:
    """Has all gateways that answer go on by their old plan; those that do not go on by themselves, or when they are
    asked again."""
    told = {"flow": flow, "plan": plan, "fence": fence}
    await asyncio.gather(*(ask(gateway, "part.abort", told) for gateway in gateways), return_exceptions=True)


Part = Mapping[str, Any]
"""A gateway's answer about its part of a flow (`part.status`); empty where it has none."""


def decision(parts: Mapping[str, Part]) -> tuple[Literal["commit", "abort", "none"], int]:
    """The way to end a change of plan that its coordinator left, and the number of the plan. `parts`: of all gateways
    that take part; each has answered, and obeyed this coordinator before it did. One that runs by the next plan was
    told to: then all others must, too. Where all have prepared it, or run by it, no board can have been told to abort;
    else no board can have been told to commit."""
    wanted = max((part["prepared_plan"] for part in parts.values() if part.get("prepared_plan") is not None), default=0)
    if not wanted:
        stands = any(part.get("state") == "stopped" for part in parts.values())
        return ("abort" if stands else "none"), max((part.get("plan", 0) for part in parts.values()), default=0) + 1
    prepared = [part.get("prepared_plan") == wanted for part in parts.values()]
    runs = [part.get("plan") == wanted and part.get("prepared_plan") is None for part in parts.values()]
    if any(runs) or all(prepared):
        return "commit", wanted
    return "abort", wanted


def staying(parts: Mapping[str, Part], plan: int) -> set[str]:
    """The gateways that have operators by this plan, as parts that run by it or have prepared it tell."""
    prepared = [part.get("prepared_assignment") for part in parts.values() if part.get("prepared_plan") == plan]
    running = [part.get("assignment") for part in parts.values() if part.get("plan") == plan]
    return {at[0] for assignment in (*prepared, *running) if assignment for at in assignment.values()}


def participants(part: Part) -> set[str]:
    """The gateways of the plan that a part runs by, and of the one that it has prepared."""
    assignments = [part.get("assignment") or {}, part.get("prepared_assignment") or {}]
    return {at[0] for assignment in assignments for at in assignment.values()}
