"""When a running flow is placed anew: a decision from evaluations, with hysteresis.

Each change of plan stops the flow for a moment and moves state, so a better score alone is no reason. There are three,
each in several looks in a row:

- a limit is violated, and the new placement violates it clearly less;
- the score is clearly better;
- the score is no worse, and rows arrive clearly earlier. The weight of latency in the score (10⁻⁶ per ms) decides only
  between placements that are else equal (FGCS 2025, section 4.2), so it never makes a score clearly better: a link that
  became slow would keep its flow for ever.

After a board joined, left or died one such look is enough. After a change the flow is left alone for a while. A
violation that no placement mends is said once: the fleet needs capacity.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from agent.placement.proposal import Score


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """Times in seconds."""

    look_s: float = 10.0
    """Time between two looks at a flow, after the evaluation of the last."""
    settle_s: float = 10.0
    """The fleet's boards must have been the same for so long: a board that restarts is no reason for two moves."""
    pause_s: float = 30.0
    """Least time between two changes of a flow. Shorter: figures of the new plan are young, and changes add up."""
    looks: int = 3
    """Evaluations in a row that must agree. 1: a peak of load moves operators."""
    least_relief: float = 0.05
    """A violation must fall by so much, in parts of a board's capacity."""
    least_gain: float = 0.1
    """A score must fall by this part of what it is."""
    least_earlier: float = 1 / 3
    """A path's latency must fall by this part of what it is. Less: errors of coordinates (a tenth of the pairs is wrong
    by 28 % or more) move operators."""
    least_earlier_ms: float = 10.0
    """And by so much. Less: boards next to each other change places for nothing that a user notices."""


ReplacementVerdict = Literal["wait", "change", "lacks capacity"]


@dataclass(slots=True)
class Replacement:
    """Placement anew of one flow, at its coordinator. Times are monotonic seconds."""

    hysteresis: Hysteresis = field(default_factory=Hysteresis)
    _boards: frozenset[str] = frozenset()
    _boards_since: float = float("-inf")
    _boards_news: bool = False
    _agreed: int = 0
    _next_look: float = float("-inf")
    _changed_at: float = float("-inf")
    _said_lack: bool = False

    def due(self, now: float, boards: Collection[str]) -> bool:
        """True if the flow is to be evaluated now. `boards`: boards that can run operators."""
        if frozenset(boards) != self._boards:
            self._boards_news = bool(self._boards)  # the first look is no news
            self._boards, self._boards_since = frozenset(boards), now
            self._agreed = 0
        rules = self.hysteresis
        settled = now - self._boards_since >= rules.settle_s
        return settled and now - self._changed_at >= rules.pause_s and now >= self._next_look

    def judge(self, at: float, running: Score, found: Score) -> ReplacementVerdict:
        """`running` and `found`: the placement that runs and the one that a heuristic found."""
        rules, now, then = self.hysteresis, running.rank, found.rank
        self._next_look = at + rules.look_s
        relief = now.violation - then.violation
        gain = now.score - then.score
        pays = relief >= rules.least_relief or (
            relief > -1e-9
            and (gain >= rules.least_gain * now.score > 0 or (gain > 0 and self._earlier(running, found)))
        )
        self._agreed = self._agreed + 1 if pays else 0
        if not pays:
            self._boards_news = False
            lacks = now.violation >= rules.least_relief
            said, self._said_lack = self._said_lack, lacks
            return "lacks capacity" if lacks and not said else "wait"
        enough = 1 if self._boards_news else rules.looks
        return "change" if self._agreed >= enough else "wait"

    def _earlier(self, running: Score, found: Score) -> bool:
        was, rules = running.terms.latency_ms, self.hysteresis
        return was - found.terms.latency_ms >= max(rules.least_earlier_ms, rules.least_earlier * was)

    def changed(self, at: float) -> None:
        """The flow's plan was changed, by whomever, or a change was refused."""
        self._changed_at, self._agreed, self._boards_news, self._said_lack = at, 0, False, False
