"""The scheduling data that a pool keeps of an instance: whether it runs, since when it waits, and how many rows it may
take in a turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from edgert.operators.fusion.region import Region
from edgert.runtime.instance.counters import Counters
from edgert.runtime.instance.edges import Edges
from edgert.runtime.instance.turn import Turn
from edgert.scheduling.consumption import FIRST_ROWS, SLOW_S, after_turn, most_rows
from edgert.scheduling.profile import Profile

PROFILED_ROWS: Final = 100
"""Fewer rows than this say too little of what a row costs."""


@dataclass(slots=True, eq=False)
class Schedule:
    """Scheduling data of one instance. Its pool locks it; the thread that runs a turn counts it."""

    number: int = -1
    """The instance's number in its pool. An instance in another process has a negative one."""
    running: bool = False
    waits: bool = False
    """True if an operator of the instance may wait for something else than the processor."""
    most_rows: int = FIRST_ROWS
    """Most rows of a turn, whatever the pool's consumption says: so few that the turn is short, by what a row cost so
    far. An instance that `waits` begins with one row, since its cost is not known."""
    fast_turns: int = 0
    """Turns in a row that were not slow."""
    started: float = 0.0
    """Start of the turn under way, or of the last one, monotonic seconds."""
    freed: float = 0.0
    """End of the last turn, monotonic seconds."""
    ready: float = 0.0
    """When the last reason not to run (a turn, a hold, a rest, a full queue behind it) ended, monotonic seconds."""
    tried_before: bool = False
    """True if the next turn starts with the rows of the failed turn."""
    profiled: tuple[int, float, int] = (0, 0.0, 0)
    """Rows in, time spent and rows given over all edges when the pool last told its policy."""
    charged_s: float = 0.0
    """The part of `Counters.busy_s` that the policy was told; kept while some instance of the pool has a weight."""

    def count(self, turn: Turn[Any], counters: Counters, region: Region | None) -> None:
        """Adds a turn that has ended to the counters (T_Q, T_S and T_C: EdgeWise, section 7.2). `region`: the logic, if
        it is one."""
        put, started, ended, rows, at_head = turn.put, turn.started, turn.ended, turn.rows, self.freed
        if self.tried_before:  # the rows stood at the head; their earlier waiting time was counted with the first try
            self.tried_before = False
        elif put < at_head:
            counters.queued_s += at_head - put
        else:
            at_head = put
        counters.scheduling_s += started - (at_head if at_head > self.ready else self.ready)
        took = ended - started
        counters.busy_s += took
        if region is not None:
            counters.unshared_s += took
            if region.sample:
                region.share(counters.unshared_s)
                counters.unshared_s = 0.0
        self.fast_turns = 0 if took >= SLOW_S else self.fast_turns + 1
        counters.turns += 1
        counters.rows_in += rows
        if took >= SLOW_S or 2 * rows >= self.most_rows:
            self.most_rows = after_turn(self.most_rows, rows, took)
        for arrival, left in turn.left:
            counters.latency.add(ended - arrival, left)
        self.freed = self.ready = ended

    def take_profile(self, counters: Counters, edges: Edges[Any]) -> Profile | None:
        """Cost and selectivity of rows since the last call; None if there were too few rows. Bounds later turns so that
        they are short at this cost."""
        rows, busy_s, given = self.profiled
        count = counters.rows_in - rows
        if count < PROFILED_ROWS:
            return None
        ends, targets = edges.width()
        self.profiled = (counters.rows_in, counters.busy_s, edges.rows())
        cost_s = (counters.busy_s - busy_s) / count
        self.most_rows = most_rows(cost_s)
        out = (self.profiled[2] - given) / count
        return Profile(cost_s, out / ends, out / targets) if targets else Profile(cost_s, 1.0)
