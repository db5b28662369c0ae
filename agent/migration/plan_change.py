"""The change of a flow's plan across gateways, as its coordinator makes it: stop, export, prepare, commit.

Before the stop, the state of operators that leave is sent ahead to the gateways of the next plan
(`gateway.flows.precopy`), so that only what changes meanwhile travels while the flow stands still. Where that cannot be
done the whole state travels then.

Each step is done on all gateways of the old and the new plan before the next one begins. Until all have prepared, any
failure is answered by an abort everywhere, and the flow goes on by its old plan; after that there is only forward. A
coordinator that takes over reads from what the parts say which of the two it is (`decision`). The gateways' side, and
what they keep across a crash, is `gateway.flows.parts`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from edgert.core.errors import EdgertError
from edgert.core.ids import short

log = logging.getLogger(__name__)
Ask = Callable[[str, str, Mapping[str, Any]], Awaitable[Any]]
"""(gateway, verb, arguments) -> result. Raises `EdgertError`."""
On = Mapping[str, str]
"""Operator copy -> gateway."""
NO_PLAN: Final = 0
"""Undoes a stop only: what a part has prepared then is another coordinator's, which may have decided for it."""
MOST_STATE: Final = 15 << 20
"""Bytes of packed state that can come to one board. A message between agents has a sixteenth MiB, for the document and
waiting batches."""
COMMIT_TRIES: Final = 10
RETRY_S: Final = 1.0


class PlanChangeError(EdgertError):
    """The plan was not changed: the flow goes on as before."""


class Pause(NamedTuple):
    """How long the parts that run by the next plan stood still, and what that cost."""

    pause_s: float
    """The longest of them, from the stop of its part to its commit, seconds."""
    rows_delayed: int
    """Rows that waited in the flow when it stopped, or came in while it stood still."""

    def plain(self) -> dict[str, Any]:
        return self._asdict()


class Made(NamedTuple):
    """A change of plan that was made."""

    pause: Pause
    ahead_bytes: int
    """Packed state that the gateways gave out while the flow ran."""
    paused_bytes: int
    """Packed state, and batches that waited, that they gave out while it stood still."""

    def plain(self) -> dict[str, Any]:
        """Returns the change as JSON types only."""
        return {**self.pause.plain(), "ahead_bytes": self.ahead_bytes, "paused_bytes": self.paused_bytes}


class UnfinishedError(EdgertError):
    """The plan is being changed, and a gateway that takes part does not answer. The coordinator goes on later."""


@dataclass(frozen=True, slots=True)
class Change:
    """From one plan of a flow to the next."""

    document: Mapping[str, Any]
    before: On
    after: On
    fence: int
    """The coordinator's fencing number, of this change only. It is the number of the next plan, too: so a part that was
    prepared for a change that was undone is never taken for a part of a later one."""
    rules: Mapping[str, Any] = field(default_factory=dict)
    """Rules of the flow's placement, for the gateways to keep."""

    @property
    def plan(self) -> int:
        return self.fence

    @property
    def flow(self) -> str:
        return str(self.document["name"])

    @property
    def gateways(self) -> list[str]:
        """Gateways that take part."""
        return sorted({*self.before.values(), *self.after.values()})

    @property
    def givers(self) -> list[str]:
        """Gateways of the present plan, in the order of their exports."""
        return sorted(set(self.before.values()))

    @property
    def part(self) -> dict[str, Any]:
        """Returns the part of the next plan that gateways are told."""
        assignment = {operator: [gateway, -1] for operator, gateway in self.after.items()}
        return {"document": self.document, "assignment": assignment, "plan": self.plan, "fence": self.fence}

    def leaving(self, giver: str) -> list[str]:
        """The operator copies that leave a gateway."""
        return [operator for operator, at in self.before.items() if at == giver and self.after[operator] != giver]

    def comes(self, giver: str, gateway: str) -> bool:
        """True if an operator copy goes from `giver` to `gateway`."""
        return any(self.after[operator] == gateway for operator in self.leaving(giver))


async def change_plan(change: Change, ask: Ask) -> Made:
    """Makes the change. Raises `PlanChangeError` where it was undone, `UnfinishedError` where it is decided and not
    everywhere done."""
    plan = NO_PLAN
    copies = await _send_ahead(change, ask)
    try:
        exports = await _stop(change, copies, ask)
        plan = change.plan
        await _prepare(change, exports, ask)
    except EdgertError as error:
        # by a greater number: a stop, or a prepare, of this change that arrives later is refused
        await abort(change.flow, change.gateways, plan, change.fence + 1, ask)
        raise PlanChangeError(f"flow {change.flow} stays where it is: {error}") from error
    pause = await commit(change.flow, change.gateways, set(change.after.values()), change.plan, change.fence, ask)
    return Made(pause, sum(map(_size, copies.values())), sum(map(_size, exports)))


def _size(said: Mapping[str, Any]) -> int:
    """Bytes of a gateway's copy, or export."""
    return sum(map(len, said["states"])) + len(said.get("queue", b"")) + len(said.get("pending", b""))


async def _send_ahead(change: Change, ask: Ask) -> dict[str, Any]:
    """Has the gateways of the next plan build their parts with the state of now. Returns source gateway → its copied
    state; nothing where one of them could not: the flow runs on in any case. Raises `PlanChangeError` where there is
    too much of it: then the flow need not stand still to find that out."""

    async def copy(giver: str) -> Any:
        told = {"flow": change.flow, "operators": change.leaving(giver), "fence": change.fence, "most": MOST_STATE}
        return await ask(giver, "part.copy", told)

    async def send(gateway: str) -> None:
        # what a gateway has no operator of it does not need; its token tells that it knows of the copy
        mine = {giver: one if change.comes(giver, gateway) else {**one, "states": []} for giver, one in copies.items()}
        await ask(gateway, "part.ahead", {**change.part, "copies": mine})

    givers = [gateway for gateway in change.gateways if change.leaving(gateway)]
    try:
        copies = dict(zip(givers, await asyncio.gather(*map(copy, givers)), strict=True))
        for gateway in change.gateways:
            size = sum(one.get("bytes", 0) for giver, one in copies.items() if change.comes(giver, gateway))
            if size > MOST_STATE:
                raise PlanChangeError(
                    f"flow {change.flow} stays where it is: {gateway} would get {size:,} bytes of state, and at most"
                    f" {MOST_STATE:,} can come to one board"
                )
        await asyncio.gather(*map(send, change.gateways))
    except PlanChangeError:
        raise
    except EdgertError as error:
        log.info("flow %s: no state is sent ahead of its change to plan %d: %s", change.flow, short(change.plan), error)
        return {}
    return copies


async def _stop(change: Change, copies: Mapping[str, Any], ask: Ask) -> list[Any]:
    """Stops the flow at all gateways of the present plan. Returns their exports, of what changed since these copies.
    Where one cannot tell that, all give the whole."""
    told = {"flow": change.flow, "fence": change.fence}
    givers = change.givers
    stopped = dict(zip(givers, await asyncio.gather(*(ask(g, "part.stop", told) for g in givers)), strict=True))

    async def export(giver: str, since: str) -> Any:
        taken = {other: one["links"][giver] for other, one in stopped.items() if giver in one["links"]}
        asked = {"flow": change.flow, "operators": change.leaving(giver), "taken": taken, "since": since}
        return await ask(giver, "part.export", asked)

    since = {giver: copies[giver]["token"] if giver in copies else "" for giver in givers}
    exports = await asyncio.gather(*(export(giver, since[giver]) for giver in givers))
    if any(one.get("since", "") != since[giver] for giver, one in zip(givers, exports, strict=True)):
        exports = await asyncio.gather(*(export(giver, "") for giver in givers))
    return exports


async def _prepare(change: Change, exports: list[Any], ask: Ask) -> None:
    async def prepare(gateway: str) -> None:
        # what waited for other gateways may be for any
        imports = [
            one if change.comes(giver, gateway) else {**one, "states": [], "queue": b""}
            for giver, one in zip(change.givers, exports, strict=True)
        ]
        await ask(gateway, "part.prepare", {**change.part, "imports": imports, "rules": change.rules})

    await asyncio.gather(*map(prepare, change.gateways))


async def commit(flow: str, gateways: Iterable[str], staying: Container[str], plan: int, fence: int, ask: Ask) -> Pause:
    """Has all gateways run by the plan that they have prepared. Those without an operator in it come after `staying`,
    those with one: they have no part of the flow then, and cannot tell the next coordinator that it was decided. Raises
    `UnfinishedError`."""
    told = {"flow": flow, "plan": plan, "fence": fence}

    async def one(gateway: str) -> Pause:
        for tried in range(1, COMMIT_TRIES + 1):
            try:
                answer = await ask(gateway, "part.commit", told)
                return Pause(float(answer["pause_s"]), int(answer.get("rows_delayed", 0)))
            except EdgertError as error:
                if tried == COMMIT_TRIES:
                    raise UnfinishedError(f"flow {flow}: {gateway} does not answer: {error}") from error
                await asyncio.sleep(RETRY_S)
        raise AssertionError("unreachable")

    names = list(gateways)
    pauses = await asyncio.gather(*(one(name) for name in names if name in staying))
    await asyncio.gather(*(one(name) for name in names if name not in staying))
    return Pause(max((one.pause_s for one in pauses), default=0.0), sum(one.rows_delayed for one in pauses))


async def abort(flow: str, gateways: Iterable[str], plan: int, fence: int, ask: Ask) -> None:
    """Has all gateways that answer go on by their old plan; those that do not go on by themselves, or when they are
    asked again."""
    told = {"flow": flow, "plan": plan, "fence": fence}
    await asyncio.gather(*(ask(gateway, "part.abort", told) for gateway in gateways), return_exceptions=True)


Part = Mapping[str, Any]
"""A gateway's answer about its part of a flow (`part.status`); empty where it has none."""


def decision(parts: Mapping[str, Part]) -> tuple[Literal["commit", "abort", "none"], int]:
    """The way to end a change of plan that its coordinator left, and the number of the plan: of several, the latest.
    `parts`: of all gateways that take part, forgotten ones left out; each has answered, and obeyed this coordinator
    before it did. One that runs by the next plan was told to: then all others must, too. Where all have prepared it, or
    run by it, no board can have been told to abort; else no board can have been told to commit. A forgotten one may
    have been, but where operators would go to it from a board that has them still, they stay there with their state.

    Where the flow runs by a later plan already, a part of the plan before that still stands left the flow by this
    change, and was not told: had this one been undone, a later one could not begin before that part ran again."""
    wanted = max((part.get("prepared_plan") or NO_PLAN for part in parts.values()), default=NO_PLAN)
    if wanted == NO_PLAN:
        return ("abort" if any(part.get("state") == "stopped" for part in parts.values()) else "none"), NO_PLAN
    holding = [part for part in parts.values() if part.get("prepared_plan") == wanted]
    runs_by = [part.get("plan", NO_PLAN) for part in parts.values()]
    left = max(runs_by) > wanted and any("plan" in part for part in holding)
    keeps = any(
        at[0] == board and part["prepared_assignment"][operator][0] not in parts
        for board, part in parts.items()
        if part in holding
        for operator, at in (part.get("assignment") or {}).items()
    )
    if wanted in runs_by or left or (len(holding) == len(parts) and not keeps):
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
