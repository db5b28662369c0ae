"""A change of a plan on two boards, and gateways that keep what it asks of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from agent.migration.plan_change import (
    Change,
    On,
    abort,
    commit,
    decision,
    staying,
)
from agent.simulation.loop import VirtualLoop
from edgert.core.errors import EdgertError
from edgert.flow.part_states import PartEvent, PartState, after, event_of

Result = TypeVar("Result")
BOARDS = ("a", "b", "c")
LATE = 4
MOST = 1_000
"""More than there are requests."""


class Died(BaseException):
    """The coordinator has."""


class Gateways:
    """The gateways' side of the protocol, in memory: parts go from state to state by the product's table. `faults`:
    number of a request → what happens with it. It is lost, before it is carried out or after; its answer is not waited
    for, and it arrives behind the next `LATE` ones; it is carried out, and arrives once more later; or, before it
    arrives, the gateway forgets what was sent ahead, merges what it has stored, starts anew, or its patience ends."""

    def __init__(self, faults: Mapping[int, str], change: Change) -> None:
        self.faults, self.change, self.asked = faults, change, 0
        self.delayed: list[tuple[int, str, str, Mapping[str, Any]]] = []
        """Requests that arrive once so many were asked."""
        self.fence = dict.fromkeys(BOARDS, 0)
        self.dies_after: int | None = None
        """Requests until the coordinator dies."""
        self.has = set(change.before.values())
        """The gateways with a part."""
        self.plan = dict.fromkeys(BOARDS, 1)
        self.on = dict.fromkeys(BOARDS, change.before)
        self.state = {board: PartState.RUNNING if board in self.has else PartState.GONE for board in BOARDS}
        self.prepared: dict[str, int | None] = dict.fromkeys(BOARDS)
        self.next: dict[str, On] = {}
        """By gateway: where operators are by what it has prepared."""
        self.prepared_by: dict[str, int] = {}
        """By gateway: the fencing number of the coordinator that had this prepared."""
        self.made_by: dict[str, int] = {}
        """The same of what the part runs by."""
        self.copied: dict[str, str] = {}
        self.ahead: dict[str, dict[str, str]] = {}
        """By gateway: giver → the token of what it sent ahead."""
        self.mixed = False
        """Whether parts ever ran by two plans at a time, or a plan began without what a part did after its export."""
        self.lives = dict.fromkeys(BOARDS, 0)
        """By gateway: how many times its part went on."""
        self.imported: dict[str, dict[str, int]] = {}
        """By gateway: of those whose exports it has prepared, `lives` at that time."""

    async def ask(self, gateway: str, verb: str, args: Mapping[str, Any]) -> Any:
        if self.asked == self.dies_after:
            raise Died
        self.asked += 1
        self.deliver(self.asked)
        fault = self.faults.get(self.asked)
        if fault == "late":
            self.delayed.append((self.asked + LATE, gateway, verb, args))
            raise EdgertError("no answer yet")
        if fault == "lost":
            raise EdgertError("no answer")
        if fault == "forgets":
            self.ahead.pop(gateway, None)
        if fault == "merges":
            self.copied.pop(gateway, None)
        if fault == "starts":
            self.ahead.pop(gateway, None)
            self.copied.pop(gateway, None)
            self._step(gateway, PartEvent.START)
        if fault == "impatient" and self.state[gateway] is PartState.STOPPED:
            self._step(gateway, PartEvent.PATIENCE_ENDS)
        answer = self._receive(gateway, verb, args)
        if fault == "twice":
            self.delayed.append((self.asked + 3 * LATE, gateway, verb, args))
        if fault == "unanswered":
            raise EdgertError("no answer")
        return answer

    def deliver(self, before: int) -> None:
        """Requests that are late arrive now, those that are due before so many were asked."""
        due, self.delayed = ([one for one in self.delayed if (one[0] <= before) is now] for now in (True, False))
        for _, gateway, verb, args in due:
            with contextlib.suppress(EdgertError):
                self._receive(gateway, verb, args)

    def _receive(self, gateway: str, verb: str, args: Mapping[str, Any]) -> Any:
        if args.get("fence", self.fence[gateway]) < self.fence[gateway]:
            raise EdgertError("it obeys another coordinator")
        self.fence[gateway] = max(self.fence[gateway], args.get("fence", 0))
        answer = self._do(gateway, verb, args)
        running = {g for g in BOARDS if self.state[g] is PartState.RUNNING}
        self.mixed |= len({(self.plan[g], tuple(self.on[g].items())) for g in running}) > 1
        return answer

    def _step(self, gateway: str, event: PartEvent, plan: int = 0) -> tuple[PartState, PartState]:
        before, prepared = self.state[gateway], self.prepared[gateway]
        event = event_of(event, plan, prepared, self.plan[gateway] if gateway in self.has else None)
        self.state[gateway] = after("f", before, event, plan, prepared)
        stood = before in (PartState.STOPPED, PartState.PREPARED)
        self.lives[gateway] += stood and self.state[gateway] is PartState.RUNNING
        return before, self.state[gateway]

    def _do(self, gateway: str, verb: str, args: Mapping[str, Any]) -> Any:
        if verb == "part.stop":
            if gateway in self.has and self.plan[gateway] >= args["fence"]:
                raise EdgertError("it runs by the plan of that change")
            self._step(gateway, PartEvent.STOP)
            return {"links": {}}
        if verb == "part.copy":
            self._step(gateway, PartEvent.CHANGE)
            self.copied[gateway] = f"copy {self.asked} of {gateway}"
            return {"token": self.copied[gateway], "states": [b"all"]}
        if verb == "part.ahead":
            self.ahead[gateway] = {giver: one["token"] for giver, one in args["copies"].items()}
            return {}
        if verb == "part.export":
            if self.state[gateway] not in (PartState.STOPPED, PartState.PREPARED):
                raise EdgertError("it does not stand still")
            since = args["since"] if args["since"] == self.copied.get(gateway) else ""
            states = [b"changes" if since else b"all"] if args["operators"] else []
            found = {"gateway": gateway, "since": since, "states": states, "queue": b"", "pending": b""}
            return {**found, "life": self.lives[gateway]}
        if verb == "part.prepare":
            needed = {one["gateway"]: one["since"] for one in args.get("imports", ()) if one["since"]}
            if needed and needed != self.ahead.pop(gateway, None):
                raise EdgertError("it lacks what was sent ahead")
            self._step(gateway, PartEvent.PREPARE, args["plan"])
            self.prepared[gateway], self.prepared_by[gateway] = args["plan"], args["fence"]
            self.next[gateway] = {operator: at[0] for operator, at in args["assignment"].items()}
            self.imported[gateway] = {one["gateway"]: one["life"] for one in args.get("imports", ())}
            return {}
        if verb == "part.commit":
            if self._step(gateway, PartEvent.COMMIT, args["plan"])[1] is not PartState.COMMITTED:
                return {"pause_s": 0.0}
            self.on[gateway], self.made_by[gateway] = self.next[gateway], self.prepared_by[gateway]
            stays = gateway in self.on[gateway].values()
            # one that leaves takes nothing; givers that run by this plan have given what they had by the one before
            giving = [giver for giver in self.imported[gateway] if self.plan[giver] != args["plan"]]
            self.mixed |= stays and any(self.lives[giver] != self.imported[gateway][giver] for giver in giving)
            self._step(gateway, PartEvent.STAYS if stays else PartEvent.LEAVES)
            self.plan[gateway], self.prepared[gateway] = args["plan"], None
            (self.has.add if stays else self.has.discard)(gateway)
            return {"pause_s": 0.1}
        before, then = self._step(gateway, PartEvent.ABORT, args["plan"])
        if before is not then:
            self.prepared[gateway] = None
        return {}

    def parts(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for gateway in BOARDS:
            if self.state[gateway] is PartState.GONE:
                found[gateway] = {}
                continue
            found[gateway] = {"state": self.state[gateway].told}
            if gateway in self.has:
                on = self.on[gateway]
                found[gateway] |= {"plan": self.plan[gateway], "assignment": plain(on), "document": {"name": "f"}}
            if self.prepared[gateway] is not None:
                found[gateway]["prepared_plan"] = self.prepared[gateway]
                found[gateway]["prepared_assignment"] = plain(self.next[gateway])
        return found

    def end(self, dies_after: int | None = None, forgotten: str = "") -> None:
        """A new coordinator ends what was left; nothing is lost any more. It dies itself after so many requests.
        `forgotten`: a board that is asked nothing any more."""
        self.deliver(MOST)
        self.fence = dict.fromkeys(BOARDS, 9)
        self.faults, self.dies_after = {}, None if dies_after is None else self.asked + dies_after
        parts = {board: part for board, part in self.parts().items() if board != forgotten}
        verdict, plan = decision(parts)
        if verdict == "commit":
            run_virtual(commit("f", parts, staying(parts, plan), plan, 9, self.ask))
        elif verdict == "abort":
            run_virtual(abort("f", parts, plan, 9, self.ask))


def plain(on: Mapping[str, str]) -> dict[str, Any]:
    return {operator: [gateway, -1] for operator, gateway in on.items()}


BEFORE = {"in": "a", "window": "b", "out": "c"}
CHANGE = Change({"name": "f"}, BEFORE, {"in": "a", "window": "c", "out": "b"}, 7)


def whole(gateways: Gateways) -> int:
    """The plan by which all parts run, on the gateways that it names and no other ones."""
    here = [board for board in BOARDS if gateways.state[board] is not PartState.GONE]
    assert {gateways.state[board] for board in here} == {PartState.RUNNING}
    (plan,) = {gateways.plan[board] for board in here}
    assert all(gateways.on[board] == gateways.on[here[0]] for board in here)
    assert set(gateways.on[here[0]].values()) == set(here)
    assert plan == 1 or len({gateways.made_by[board] for board in here}) == 1, "of one change, all of them"
    return plan


def run_virtual(story: Coroutine[Any, Any, Result]) -> Result:
    """Its result, in virtual time: a coordinator that asks again later waits for nothing."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story)
