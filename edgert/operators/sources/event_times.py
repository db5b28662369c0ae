"""Which time a source's row has: that of the payload, or that of its arrival, and what is counted of it.

A device whose clock was never set says 1970 after its boot: rows with such a time would open windows that nobody looks
for. A row of which the payload states no time takes that of its arrival (`edgert.codecs`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from edgert.core.batch import Row

NO_TIME: Final = "no time, and the clock is not set"
UNTIMED: Final = "no time in time_field (kept)"
"""Counted where the document names the field. The row takes the time of its arrival."""
EARLY: Final = "before time_earliest"
EARLY_KEPT: Final = "before time_earliest (kept)"


@dataclass(frozen=True, slots=True)
class EventTimes:
    """Settings of event times in a source's document."""

    arrival: bool = False
    """All rows take the time of their arrival."""
    declared: bool = False
    """The document names the field of the time: rows without it are counted."""
    earliest: float = -math.inf
    """A time before it, in seconds since the epoch, is that of a clock that was never set."""
    drops_early: bool = False
    """Such rows are dropped; else they take the time of their arrival. Either is counted."""

    def settled(self, rows: Sequence[Row], wall: float, drops: Counter[str]) -> list[Row]:
        """The rows that have an event time, set where it is that of arrival: `wall`, which is NaN while the board's
        clock is not set. `drops` counts the others."""
        early = untimed = lost = 0
        kept: list[Row] = []
        for row in rows:
            time = row["time"]
            was_early = time < self.earliest
            if was_early and self.drops_early:
                early += 1
                continue
            if self.arrival or was_early:
                row["time"] = wall
            if row["time"] != row["time"]:  # the clock is not set, so there is none to take
                lost += 1
                continue
            early += was_early
            untimed += time == wall  # to the microsecond: the codec found none in the payload
            kept.append(row)
        self.count(early, untimed, drops)
        if lost:
            drops[NO_TIME] += lost
        return kept

    def count(self, early: int, untimed: int, drops: Counter[str]) -> None:
        """Counts rows with an early time, and rows without one."""
        if early:
            drops[EARLY if self.drops_early else EARLY_KEPT] += early
        if untimed and self.declared:
            drops[UNTIMED] += untimed

    # -- the same as lines inside a decoder's function (see `edgert.operators.fusion.compiled_region`);
    # `t` is the time of the message

    @property
    def constants(self) -> Mapping[str, Any]:
        """Constants of the lines."""
        return {"EARLIEST": self.earliest}

    def check(self) -> list[str]:
        """Lines that set `t`; `break` leaves the message to `settled`."""
        if self.arrival:
            return ["t = wall"]
        if self.earliest == -math.inf:
            return []
        if self.drops_early:
            return ["if t < EARLIEST:", "    break"]
        return ["was_early = t < EARLIEST", "if was_early:", "    t = wall"]

    def effect(self) -> list[str]:
        """Lines that count in `early` and `untimed`, once the message is sure to be taken."""
        if self.arrival:
            return []
        keeps = not self.drops_early and self.earliest > -math.inf
        lines = ["if was_early:", "    early += 1"] if keeps else []
        if self.declared:
            lines += [f"{'el' * keeps}if t == wall:", "    untimed += 1"]
        return lines
