"""Observation of a simulated fleet: the operators that each board runs, the times at which the flow stands still with
their reasons, knowledge of deaths.

It looks at every change of what a gateway runs, of boards and of ways, so no state is missed however short.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from edgert.core.ids import short

FlowState = Literal["runs", "lacks a board", "is cut", "changes its plan"]
AGAIN_S: Final = 60.0
"""After so long without one, a false death gets a line again."""
TOLD_S: Final = 1.0
"""A change of plan that takes less is told by the agents' own words only."""


class Line(NamedTuple):
    """A line of the timeline. `board`: whose log said it; empty: the simulation itself."""

    at_s: float
    board: str
    text: str


class Outage(NamedTuple):
    """A time in which the flow did not run whole."""

    began_s: float
    seconds: float
    state: FlowState
    why: str


class PartSeen(NamedTuple):
    """A part of the flow on a board that lives."""

    plan: int
    running: bool
    assignment: Mapping[str, str]


@dataclass(slots=True)
class Death:
    """A board that died, until all know it or it is back. `knows`: boards that hold it for dead."""

    at_s: float
    knows: set[str] = field(default_factory=set)
    first_s: float | None = None


class Watch:
    """The truth about one flow. `now`: seconds since it was deployed."""

    def __init__(self, now: Callable[[], float], connected: Callable[[str, str], bool]) -> None:
        """`connected`: tells if two boards hear each other, both ways."""
        self._now, self._connected = now, connected
        self.lines: list[Line] = []
        self.outages: list[Outage] = []
        self.violations: list[str] = []
        """Operators that ran by two plans on two boards."""
        self.deaths_known_s: list[float] = []
        """After how long all living members knew of a death."""
        self.false_deaths = 0
        """How often a board that lived was held for dead by another one."""
        self.changes = self.moves = 0
        """Changes of plan, and operator copies that went to another board by them."""
        self.coordinators: dict[str, str] = {}
        """Board -> the board that it takes for the coordinator."""
        self._state: FlowState = "runs"
        self._why = ""
        self._since: float | None = None
        self._deaths: dict[str, Death] = {}
        self._false_said: dict[str, float] = {}
        self._newest = PartSeen(0, False, {})

    def say(self, text: str, board: str = "") -> None:
        self.lines.append(Line(self._now(), board, text))

    # -- the flow

    def look(self, parts: Mapping[str, PartSeen], living: Collection[str]) -> None:
        """`parts`: by board, of all that live and have one."""
        self._check_owners(parts)
        newest = max((*parts.values(), self._newest), key=lambda part: part.plan)
        if newest.plan > self._newest.plan:
            self._moved(newest)
        state, why = self._judge(parts, living)
        if self._since is None:
            if state == "runs":
                self._state, self._since = "runs", self._now()
            return
        if (state, why) != (self._state, self._why):
            self._becomes(state, why)

    def _moved(self, newest: PartSeen) -> None:
        before, self._newest = self._newest, newest
        if not before.plan:
            self.say(f"plan {short(newest.plan)}: {_placed(newest.assignment)}")
            return
        moved = {name: at for name, at in newest.assignment.items() if before.assignment.get(name) != at}
        steps = (f"{name} from {before.assignment.get(name)} to {at}" for name, at in moved.items())
        self.say(f"plan {short(newest.plan)}: {', '.join(steps) or 'nothing moves'}")
        self.changes += 1
        self.moves += len(moved)

    def _judge(self, parts: Mapping[str, PartSeen], living: Collection[str]) -> tuple[FlowState, str]:
        newest = self._newest
        boards = sorted(set(newest.assignment.values()))
        if gone := [board for board in boards if board not in living]:
            return "lacks a board", f"{', '.join(gone)} {'is' if len(gone) == 1 else 'are'} down"
        found = [parts.get(board) for board in boards]
        if not boards or not all(part and part.running and part.plan == newest.plan for part in found):
            return "changes its plan", "its plan is being changed"
        apart = [(a, b) for a in boards for b in boards if a < b and not self._connected(a, b)]
        if apart:
            return "is cut", f"{apart[0][0]} and {apart[0][1]} do not hear each other"
        return "runs", ""

    def _becomes(self, state: FlowState, why: str) -> None:
        now, since = self._now(), self._since or 0.0
        if self._state != "runs" and now > since:
            self.outages.append(Outage(since, now - since, self._state, self._why))
        if state == "runs":
            if self._state != "changes its plan" or now - since >= TOLD_S:
                self.say(f"the flow runs whole again after {now - since:.1f} s ({self._why})")
        elif state != "changes its plan":
            self.say(f"the flow does not run whole: {why}")
        self._state, self._why, self._since = state, why, now

    def end(self) -> None:
        """The simulation ends: an outage that lasts counts until now."""
        now, since = self._now(), self._since
        if since is not None and self._state != "runs" and now > since:
            self.outages.append(Outage(since, now - since, self._state, self._why))
            self.say(f"at the end the flow does not run whole: {self._why}, for {now - since:.1f} s")

    def _check_owners(self, parts: Mapping[str, PartSeen]) -> None:
        """An operator never runs by two plans on two boards."""
        owners: dict[str, str] = {}
        for board, part in sorted(parts.items()):
            for operator, at in part.assignment.items() if part.running else ():
                if at == board and owners.setdefault(operator, board) != board:
                    other = owners[operator]
                    text = (
                        f"TWO OWNERS: {operator} runs on {other} by plan {parts[other].plan} and on {board} by plan"
                        f" {part.plan}"
                    )
                    if text not in self.violations:
                        self.violations.append(text)
                        self.say(text)

    # -- boards

    def died(self, board: str) -> None:
        """The board lost its power."""
        self._deaths[board] = Death(self._now())
        self.coordinators.pop(board, None)

    def started(self, board: str) -> None:
        """The board is back."""
        death = self._deaths.pop(board, None)
        if death is not None and death.first_s is None:
            self.say(f"no agent had noticed that {board} was down")

    def holds_for_dead(self, observer: str, board: str, living: set[str]) -> None:
        """`observer` declares the board dead; `living`: the boards that live."""
        death = self._deaths.get(board)
        if death is None:
            if board in living:
                self.false_deaths += 1
                self._say_false(observer, board)
            return
        passed = self._now() - death.at_s
        death.knows.add(observer)
        if death.first_s is None:
            death.first_s = passed
        if death.knows >= living:
            self.deaths_known_s.append(passed)
            self.say(f"all {len(living)} others know of the death of {board} after {passed:.1f} s (the first after"
                     f" {death.first_s:.1f} s)")  # fmt: skip
            del self._deaths[board]

    def _say_false(self, observer: str, board: str) -> None:
        """One line for all that hold a board for dead, and for all that one board holds for dead."""
        now, last = self._now(), float("-inf")
        if now - max(self._false_said.get(name, last) for name in (observer, board)) >= AGAIN_S:
            self.say(f"{board} is held for dead, though it lives", observer)
        self._false_said[observer] = self._false_said[board] = now

    def coordinates(self, flow: str, board: str, chosen: str) -> None:
        """`board` takes `chosen` for the flow's coordinator now."""
        before = set(self.coordinators.values())
        self.coordinators[board] = chosen
        after = set(self.coordinators.values())
        if self._since is None:
            return  # the flow does not run yet
        if before and chosen not in before:
            self.say(f"{chosen} is taken for the coordinator of {flow}, first by {board}")
        elif len(after) == 1 and len(before) > 1:
            self.say(f"all members take {chosen} for the coordinator of {flow}")


def _placed(assignment: Mapping[str, str]) -> str:
    on: dict[str, list[str]] = {}
    for operator, board in assignment.items():
        on.setdefault(board, []).append(operator)
    return "; ".join(f"{', '.join(operators)} on {board}" for board, operators in on.items())
