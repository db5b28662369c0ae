"""What the instances of a board will use in the next three minutes, from what its gateway counts.

Two readings of the figures give the rate of arrivals, the time per row and the bytes per row of each instance. The
rates go to a forecast of its own (`holt_winters`), and forecast × time per row is its ring (TPDS 2017, 4.1.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent.interference.holt_winters import HoltWinters
from agent.interference.ring import HORIZON, Ring, board_ring, instance_ring

SEASON: Final = 60
"""Readings in a season: five minutes with one each five seconds."""
LEAST_S: Final = 0.5
"""Shorter times between two readings say little."""


@dataclass(slots=True)
class _Instance:
    """One instance, as it was read last."""

    rows: float
    busy_s: float
    bytes: float
    at: float
    arrivals: HoltWinters = field(default_factory=lambda: HoltWinters(SEASON))
    cpu_s: float = 0.0
    """Per row."""
    row_bytes: float = 0.0
    period_s: float = 0.0
    cpu_now: float = 0.0
    """Core-seconds per second between the last two readings."""


class Forecasts:
    """By flow and instance; what is gone from the figures is forgotten."""

    def __init__(self) -> None:
        self._instances: dict[tuple[str, str], _Instance] = {}

    def observe(self, figures: Mapping[str, Any]) -> None:
        """A reading of a gateway's figures. Counters that went back begin anew."""
        seen: dict[tuple[str, str], _Instance] = {}
        for flow, told in figures.get("flows", {}).items():
            sent: dict[str, float] = {}
            for edge in told.get("edges", ()):
                sent[edge["from"]] = sent.get(edge["from"], 0.0) + edge["bytes"]
            for name, counted in told.get("instances", {}).items():
                rows, busy_s, at = counted["rows_in"], counted["busy_s"], counted.get("at", figures["monotonic"])
                now = _Instance(rows, busy_s, sent.get(name, 0.0), at)
                before = self._instances.get((flow, name))
                seen[flow, name] = now if before is None or _is_new(before, now) else _advanced(before, now)
        self._instances = seen

    def rings(self, speed: float) -> dict[tuple[str, str], Ring]:
        """The ring of each instance. `speed`: of a core of this board, in reference cores."""
        found: dict[tuple[str, str], Ring] = {}
        for key, one in self._instances.items():
            if one.period_s:
                each = one.arrivals.forecast(round(HORIZON / one.period_s) + 1)
                rates = [each[int(second / one.period_s)] for second in range(int(HORIZON))]
                found[key] = instance_ring(rates, one.cpu_s * speed, one.row_bytes)
        return found

    def board(self, speed: float, load: float) -> Ring:
        """The ring of the board. `load`: runnable processes on average, of all programs; beyond what the instances use
        it is external load."""
        ours = sum(one.cpu_now for one in self._instances.values())
        return board_ring(self.rings(speed).values(), external_cpu=max(0.0, load - ours) * speed)


def _is_new(before: _Instance, now: _Instance) -> bool:
    return now.rows < before.rows or now.busy_s < before.busy_s or now.bytes < before.bytes


def _advanced(before: _Instance, now: _Instance) -> _Instance:
    passed = now.at - before.at
    if passed < LEAST_S:
        return before
    rows = now.rows - before.rows
    before.arrivals.observe(rows / passed)
    if rows:
        before.cpu_s = (now.busy_s - before.busy_s) / rows
        before.row_bytes = (now.bytes - before.bytes) / rows
    before.cpu_now = (now.busy_s - before.busy_s) / passed
    before.period_s = passed
    before.rows, before.busy_s, before.bytes, before.at = now.rows, now.busy_s, now.bytes, now.at
    return before
