"""What a fleet ships, and the collector that lands it: all of the real one but its broker."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from benchmarks.outage.rows import COLUMNS, RATE, SCHEMA, Rows
from edgert.central.collector.collector import Collector
from edgert.central.collector.inbox import ResultMessage
from edgert.central.collector.main import HOLD_BYTES
from edgert.central.landing.landing import Landing
from edgert.central.tables.show import select
from edgert.core.ids import make_epoch
from edgert.core.results.result_schema import Schema
from edgert.core.results.results import OpenBatch, RowsBatch, pack_result, results_topic
from edgert.core.system_clock import SystemClock

FLOW: Final = "city-air"
SENSORS: Final = RATE
"""Per gateway at most."""
LATE: Final = 3
"""So many windows later comes what corrects one."""
_FLEET: Final = "bench"
_DIFFERENT: Final = 60


class Fleet:
    """Gateways with sensors, each of which ends a window of `window_s` (s of event time) per second of the clock.

    A gateway ships every `interval_s` seconds, at its own second of them, what has ended since. `corrected`: every so
    many windows get a second contribution, `LATE` windows later (0: none).
    """

    def __init__(
        self, gateways: int, sensors: int, interval_s: int, start: float, *, window_s: float = 1.0, corrected: int = 0
    ) -> None:
        self._interval_s = interval_s
        self._start = start
        self._window_s = window_s
        self._corrected = corrected
        self._schema = Schema(window_s, SCHEMA.keys, SCHEMA.aggregates)
        rows = [row[2:] for row in Rows(1, _DIFFERENT).seconds(_DIFFERENT)]
        self._partials = [rows[at * RATE : at * RATE + sensors] for at in range(_DIFFERENT)]
        self._sequences = {f"g{number:03}": 0 for number in range(gateways)}
        self.rows = 0
        """That were shipped."""
        self.windows = 0
        """That these make."""

    def start_of(self, second: int) -> float:
        """When the windows begin that end in a second (s since the epoch)."""
        return self._start + second * self._window_s

    def opens(self) -> list[ResultMessage]:
        """What opens each gateway's epoch."""
        return [self._message(OpenBatch(**self._number(name), schema=self._schema)) for name in self._sequences]

    def second(self, second: int) -> list[ResultMessage]:
        """The messages of those gateways that ship in a second (counted from 0, each asked for once, in order)."""
        messages = []
        for at, name in enumerate(self._sequences):
            if (second - at) % self._interval_s == 0:
                ended = range(max(0, second - self._interval_s + 1), second + 1)
                rows = [row for of in ended for row in self._rows(name, of)]
                messages.append(self._message(RowsBatch(**self._number(name), columns=COLUMNS, rows=rows)))
        return messages

    def _rows(self, gateway: str, second: int) -> list[list[Any]]:
        rows = self._windows(gateway, second, 1)
        self.windows += len(rows)
        if self._corrected and second >= LATE:
            rows += self._windows(gateway, second - LATE, self._corrected)
        self.rows += len(rows)
        return rows

    def _windows(self, gateway: str, second: int, every: int) -> list[list[Any]]:
        begin = self.start_of(second)
        end = begin + self._window_s
        partials = self._partials[second % _DIFFERENT][::every]
        return [[begin, end, f"{gateway}-{name}", *values] for name, *values in partials]

    def _number(self, gateway: str) -> dict[str, Any]:
        self._sequences[gateway] += 1
        return {
            "gateway": gateway,
            "flow": FLOW,
            "epoch": make_epoch(1, 7),
            "stream": 0,
            "sequence": self._sequences[gateway],
            "flow_version": 1,
        }

    def _message(self, batch: OpenBatch | RowsBatch) -> ResultMessage:
        return ResultMessage(results_topic(_FLEET, batch.gateway, FLOW), pack_result(batch))


class Landings:
    """A collector: each call is what it has gathered, so one commit."""

    def __init__(self, root: Path) -> None:
        self._collector = Collector("bench", Landing(str(root)), SystemClock(), 60.0, HOLD_BYTES)

    def land(self, messages: Sequence[ResultMessage]) -> None:
        """Raises `RuntimeError` if something did not land."""
        self._collector.handle(messages)
        counters = self._collector.counters
        amiss = {name: value for name, value in counters.plain().items() if value and name not in _GOOD}
        if amiss:
            raise RuntimeError(f"expected all results in the landing table, got {amiss}")


_GOOD: Final = ("messages", "rows", "commits")


def clear(root: Path) -> None:
    """Leaves nothing but what has landed."""
    for made in ("fleet", "leases", "readers", "_spark", "plain"):
        shutil.rmtree(root / made, ignore_errors=True)


def files(table: Path) -> int:
    """How many a table has."""
    return len(pa.table(DeltaTable(str(table)).get_add_actions()))


def files_per_day(table: Path) -> float:
    """How many a table has for each day of which it has any (0: none yet)."""
    days = pa.table(DeltaTable(str(table)).get_add_actions(flatten=True))["partition.day"]
    return len(days) / max(1, len(days.unique()))


def count(root: Path) -> list[Any]:
    """Windows in the fleet table and readings in these."""
    _, [row] = select(str(root), f"SELECT count(*), sum(n) FROM fleet_{FLOW.replace('-', '_')}")
    return row
