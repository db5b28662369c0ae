"""Forecasts of the use of a board by its instances in the next three minutes, from the gateway's figures.

Two readings of the figures give the rate of arrivals, the time per row and the bytes per row of each instance. The
rates go to a forecast of its own (`holt_winters`), and forecast × time per row is its ring (TPDS 2017, 4.1.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from agent.interference.holt_winters import HoltWinters
from agent.interference.ring import HORIZON, Ring, board_ring, instance_ring

SEASON: Final = 60
"""Readings in a season: five minutes with one each five seconds."""
LEAST_S: Final = 0.5
"""Shorter times between two readings say little."""


class _Counted(NamedTuple):
    """Counters of one instance, as they were read."""

    rows: float
    busy_s: float
    bytes: float
    at: float
    plan: object
    """A flow that goes on by another plan counts from 0 again, also on boards where nothing moved."""


@dataclass(slots=True)
class _KnownInstance:
    """One instance, as it was read last."""

    counted: _Counted
    arrivals: HoltWinters = field(default_factory=lambda: HoltWinters(SEASON, at_once=False))
    fitted: int = 0
    """Number of the reading at which its forecast was fitted."""
    cpu_s: float = 0.0
    """Per row."""
    row_bytes: float = 0.0
    period_s: float = 0.0
    cpu_now: float = 0.0
    """Core-seconds per second between the last two readings."""
    link_now: float = 0.0
    """Bytes per second."""

    def _goes_on(self, now: _Counted) -> bool:
        """False where its counters began anew."""
        before = self.counted
        more = now.rows >= before.rows and now.busy_s >= before.busy_s and now.bytes >= before.bytes
        return more and now.plan == before.plan

    def observe(self, now: _Counted) -> None:
        """Arrivals in periods that were not read are taken to be as predicted: the season keeps its phase. After more
        than a season the forecast begins anew."""
        before, passed, counts = self.counted, now.at - self.counted.at, self._goes_on(now)
        if counts and passed < LEAST_S:
            return
        periods = round(passed / self.period_s) if self.period_s else 1
        if periods > SEASON:
            self.arrivals, self.period_s = HoltWinters(SEASON, at_once=False), 0.0
        self.counted = now
        if not counts or periods > SEASON:
            self._fill(periods)
            return
        self._fill(periods - 1)
        rows = now.rows - before.rows
        self.arrivals.observe(rows / passed)
        if rows:
            self.cpu_s = (now.busy_s - before.busy_s) / rows
            self.row_bytes = (now.bytes - before.bytes) / rows
        self.cpu_now = (now.busy_s - before.busy_s) / passed
        self.link_now = (now.bytes - before.bytes) / passed
        self.period_s = passed if periods <= 1 else self.period_s

    def _fill(self, periods: int) -> None:
        for _ in range(periods if self.period_s else 0):
            self.arrivals.observe(self.arrivals.forecast(1)[0])


class Forecasts:
    """Forecasts by flow and instance; an instance that is gone from the figures is forgotten."""

    def __init__(self) -> None:
        self._instances: dict[tuple[str, str], _KnownInstance] = {}
        self._readings = 0

    def observe(self, figures: Mapping[str, Any]) -> None:
        """A reading of a gateway's figures."""
        seen: dict[tuple[str, str], _KnownInstance] = {}
        for flow, told in figures.get("flows", {}).items():
            sent: dict[str, float] = {}
            for edge in told.get("edges", ()):
                sent[edge["from"]] = sent.get(edge["from"], 0.0) + edge["bytes"]
            for name, one in told.get("instances", {}).items():
                at = one.get("at", figures["monotonic"])
                plan = told.get("version"), told.get("plan")
                counted = _Counted(one["rows_in"], one["busy_s"], sent.get(name, 0.0), at, plan)
                known = self._instances.get((flow, name))
                if known is None:
                    known = _KnownInstance(counted)
                else:
                    known.observe(counted)
                seen[flow, name] = known
        self._instances = seen
        self._readings += 1
        self._fit_one()

    def _fit_one(self) -> None:
        """A fit costs as much as the rings of many instances, so that one instance has its turn per reading: the one
        that waited longest."""
        due = [one for one in self._instances.values() if one.arrivals.due]
        if due:
            one = min(due, key=lambda one: one.fitted)
            one.arrivals.fit()
            one.fitted = self._readings

    @property
    def cpu_now(self) -> float:
        """Cores that the instances used between the last two readings."""
        return sum(one.cpu_now for one in self._instances.values())

    def used(self, speed: float, load: float, external_link: float = 0.0) -> tuple[float, float]:
        """Reference cores, and bytes per second, in use between the last two readings. See `board` for arguments."""
        link = sum(one.link_now for one in self._instances.values())
        return max(self.cpu_now, load) * speed, link + external_link

    def rings(self, speed: float) -> dict[tuple[str, str], Ring]:
        """The ring of each instance. `speed`: of a core of this board, in reference cores."""
        found: dict[tuple[str, str], Ring] = {}
        for key, one in self._instances.items():
            if one.period_s:
                rates = one.arrivals.forecast(round(HORIZON / one.period_s) + 1)
                found[key] = instance_ring(rates, one.cpu_s * speed, one.row_bytes, one.period_s)
        return found

    def board(self, rings: Iterable[Ring], speed: float, load: float, external_link: float = 0.0) -> Ring:
        """The ring of the board. `rings`: of its instances; `load`: runnable processes on average, of all programs;
        beyond what the instances use it is external load. `external_link`: bytes per second that others send."""
        return board_ring(rings, max(0.0, load - self.cpu_now) * speed, external_link)
