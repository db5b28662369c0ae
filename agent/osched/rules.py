"""A rule names the policy to use, with a condition and a period if wanted; read from the setting `sched.policy`.

qs                                  queue size, once a period
slack every 100 ms
when cpu > 80 %: qs else: none      queue size while the board is busy, else nothing is changed
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from math import gcd
from typing import Final

from agent.osched.policy.policies import NONE, POLICIES
from edgert.core.errors import EdgertError, show

SHORTEST_MS: Final = 50
LONGEST_MS: Final = 3_600_000
_CHOICE: Final = re.compile(r"([a-z]+)(?:\s+every\s+(\d+(?:\.\d+)?)\s*(ms|s))?")
_WHEN: Final = re.compile(r"when\s+(cpu|pressure)\s*([<>])\s*(\d+(?:\.\d+)?)\s*%\s*:\s*(.+?)\s*else\s*:\s*(.+)")
EXPECTED: Final = (
    f"a policy ({', '.join((*POLICIES, NONE))}), with 'every N ms' (or s) after it if wanted, or "
    "'when cpu > N %: POLICY else: POLICY' (or pressure, or <)"
)


class RuleError(EdgertError):
    """A rule could not be read; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy and its own period; None: the usual one."""

    policy: str
    period_s: float | None = None


@dataclass(frozen=True, slots=True)
class SchedulingRule:
    """`choice`, unless `measure` is given: then only while `measure` is above (or below) `bound`, else `otherwise`."""

    choice: Choice
    measure: str = ""
    """`cpu`: part of the board's CPU time in use; `pressure`: part of the time in which something waited for a core
    (PSI, some, 10 s)."""
    above: bool = True
    bound: float = 0.0
    """A part, 0 to 1."""
    otherwise: Choice = Choice(NONE)

    def choose(self, measures: dict[str, float]) -> Choice:
        """The choice under `measures`; a measure that the board does not give counts as 0."""
        if not self.measure:
            return self.choice
        value = measures.get(self.measure, 0.0)
        return self.choice if (value > self.bound if self.above else value < self.bound) else self.otherwise

    def periods(self, usual_s: float) -> list[float]:
        """Seconds, of every policy that may run."""
        both = (self.choice, self.otherwise) if self.measure else (self.choice,)
        return [c.period_s or usual_s for c in both]


def parse(text: str) -> SchedulingRule:
    """The rule that `text` says. Raises `RuleError`."""
    if condition := _WHEN.fullmatch(text.strip()):
        measure, sign, percent, then, other = condition.groups()
        return SchedulingRule(_choice(then, text), measure, sign == ">", float(percent) / 100, _choice(other, text))
    return SchedulingRule(_choice(text, text))


def _choice(part: str, whole: str) -> Choice:
    match = _CHOICE.fullmatch(part.strip())
    if match is None or match[1] not in (*POLICIES, NONE):
        raise RuleError(f"expected {EXPECTED}, got {show(whole)}")
    if match[2] is None:
        return Choice(match[1])
    period_ms = float(match[2]) * (1000 if match[3] == "s" else 1)
    if not SHORTEST_MS <= period_ms <= LONGEST_MS:
        raise RuleError(f"expected a period from {SHORTEST_MS} ms to {LONGEST_MS // 1000} s, got {show(whole)}")
    return Choice(match[1], period_ms / 1000)


def common_period_s(periods_s: list[float]) -> float:
    """The greatest common divisor of the periods, in whole milliseconds, at least `SHORTEST_MS` (Algorithm 1, L9)."""
    whole = [max(SHORTEST_MS, round(p * 1000)) for p in periods_s]
    return max(SHORTEST_MS, reduce(gcd, whole)) / 1000
