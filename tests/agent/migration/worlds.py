"""A change of a plan on two boards, and gateways that keep what it asks of them."""

from __future__ import annotations

import asyncio
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

Result = TypeVar("Result")
BOARDS = ("a", "b", "c")


class Gateways:
    """The gateways' side of the protocol as `gateway.flows.parts` has it, in memory. Requests may be lost, before they
    are carried out or after; with one, the gateway may forget what was sent ahead, or merge what it has stored."""

    def __init__(self, faults: Mapping[int, str], change: Change) -> None:
        self.faults, self.change, self.asked = faults, change, 0
        self.has = set(change.before.values())
        """The gateways with a part."""
        self.plan = dict.fromkeys(BOARDS, 1)
        self.on = dict.fromkeys(BOARDS, change.before)
        self.state = {board: "running" if board in self.has else "gone" for board in BOARDS}
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
        """Whether parts ever ran by two plans at a time."""

    async def ask(self, gateway: str, verb: str, args: Mapping[str, Any]) -> Any:
        self.asked += 1
        fault = self.faults.get(self.asked)
        if fault == "lost":
            raise EdgertError("no answer")
        if fault == "forgets":
            self.ahead.pop(gateway, None)
        if fault == "merges":
            self.copied.pop(gateway, None)
        answer = self._do(gateway, verb, args)
        running = {g for g in BOARDS if self.state[g] == "running"}
        self.mixed |= len({(self.plan[g], tuple(self.on[g].items())) for g in running}) > 1
        if fault == "unanswered":
            raise EdgertError("no answer")
        return answer

    def _do(self, gateway: str, verb: str, args: Mapping[str, Any]) -> Any:
        if verb == "part.stop":
            if gateway not in self.has or self.prepared[gateway] is not None:
                raise EdgertError("it has no part, or waits for a decision")
            self.state[gateway] = "stopped"
            return {"links": {}}
        if verb == "part.copy":
            self.copied[gateway] = f"copy {self.asked} of {gateway}"
            return {"token": self.copied[gateway], "states": [b"all"]}
        if verb == "part.ahead":
            self.ahead[gateway] = {giver: one["token"] for giver, one in args["copies"].items()}
            return {}
        if verb == "part.export":
            since = args["since"] if args["since"] == self.copied.get(gateway) else ""
            states = [b"changes" if since else b"all"] if args["operators"] else []
            return {"gateway": gateway, "since": since, "states": states, "queue": b"", "pending": b""}
        if verb == "part.prepare":
            if self.state[gateway] == "running":
                raise EdgertError("it runs")
            if gateway in self.has and self.prepared[gateway] not in (None, args["plan"]):
                raise EdgertError("it waits for the decision of another change")
            needed = {one["gateway"]: one["since"] for one in args.get("imports", ()) if one["since"]}
            if needed and needed != self.ahead.pop(gateway, None):
                raise EdgertError("it lacks what was sent ahead")
            self.state[gateway], self.prepared[gateway] = "prepared", args["plan"]
            self.next[gateway] = {operator: at[0] for operator, at in args["assignment"].items()}
            self.prepared_by[gateway] = args["fence"]
            return {}
        if verb == "part.commit":
            told = gateway not in self.has or self.plan[gateway] >= args["plan"]
            if self.prepared[gateway] is None and told:
                return {"pause_s": 0.0}
            if self.prepared[gateway] != args["plan"]:
                raise EdgertError("nothing of that is prepared")
            self.plan[gateway], self.prepared[gateway] = args["plan"], None
            self.on[gateway], self.made_by[gateway] = self.next[gateway], self.prepared_by[gateway]
            self.state[gateway] = "running" if gateway in self.on[gateway].values() else "gone"
            (self.has.add if self.state[gateway] == "running" else self.has.discard)(gateway)
            return {"pause_s": 0.1}
        if self.prepared[gateway] == args["plan"]:
            self.prepared[gateway] = None
        if self.prepared[gateway] is None:
            self.state[gateway] = "running" if gateway in self.has else "gone"
        return {}

    def parts(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for gateway in BOARDS:
            if self.state[gateway] == "gone":
                found[gateway] = {}
                continue
            found[gateway] = {"state": self.state[gateway]}
            if gateway in self.has:
                on = self.on[gateway]
                found[gateway] |= {"plan": self.plan[gateway], "assignment": plain(on), "document": {"name": "f"}}
            if self.prepared[gateway] is not None:
                found[gateway]["prepared_plan"] = self.prepared[gateway]
                found[gateway]["prepared_assignment"] = plain(self.next[gateway])
        return found

    def end(self) -> None:
        """A new coordinator ends what was left; nothing is lost any more."""
        self.faults = {}
        verdict, plan = decision(self.parts())
        if verdict == "commit":
            run_virtual(commit("f", BOARDS, staying(self.parts(), plan), plan, 9, self.ask))
        elif verdict == "abort":
            run_virtual(abort("f", BOARDS, plan, 9, self.ask))


def plain(on: Mapping[str, str]) -> dict[str, Any]:
    return {operator: [gateway, -1] for operator, gateway in on.items()}


BEFORE = {"in": "a", "window": "b", "out": "c"}
CHANGE = Change({"name": "f"}, BEFORE, {"in": "a", "window": "c", "out": "b"}, 7)


def whole(gateways: Gateways) -> int:
    """The plan by which all parts run, on the gateways that it names and no other ones."""
    here = [board for board in BOARDS if gateways.state[board] != "gone"]
    assert {gateways.state[board] for board in here} == {"running"}
    (plan,) = {gateways.plan[board] for board in here}
    assert all(gateways.on[board] == gateways.on[here[0]] for board in here)
    assert set(gateways.on[here[0]].values()) == set(here)
    assert plan == 1 or len({gateways.made_by[board] for board in here}) == 1, "of one change, all of them"
    return plan


def run_virtual(story: Coroutine[Any, Any, Result]) -> Result:
    """Its result, in virtual time: a coordinator that asks again later waits for nothing."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story)
