"""Observations for the demo's screen, made in helper threads: the gateway's status, and the last rows of the fleet
table."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

STATUS_PERIOD_S = 0.5
TABLE_PERIOD_S = 2.0
JOIN_S = 30.0
"""A question that takes longer is left to itself."""
ROWS = 6
_HIDDEN = ("day", "window_end", "gateways")
"""Columns of the fleet table that the summary leaves out."""


@dataclass(frozen=True, slots=True)
class FleetRows:
    """The end of the fleet table."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[object, ...], ...] = ()
    """Newest window first."""
    total: int = 0
    version: int = -1
    """Version of the Delta table; -1: there is none yet."""


class Watcher:
    """Asks again and again in a thread of its own; the newest answer stands in `value`. Failures keep the last one."""

    def __init__(self, ask: Callable[[], Any], period_s: float, name: str) -> None:
        self._ask = ask
        self._period_s = period_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.value: Any = None
        self.problem = ""

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.value = self._ask()
                self.problem = ""
            except Exception as problem:  # noqa: BLE001 - whatever it is, the demo goes on showing the rest
                self.problem = f"{type(problem).__name__}: {problem}"
            self._stopping.wait(self._period_s)

    def stop(self) -> None:
        """Asks no more; returns at once."""
        self._stopping.set()

    def join(self) -> None:
        """Waits for the question under way. A thread that reads a Delta table while the interpreter ends would abort
        the process: what it calls is no Python, and cannot be ended."""
        if self._thread.ident is not None:
            self._thread.join(JOIN_S)


def fetch_status(url: str) -> dict[str, Any]:
    """The gateway's status. Raises `OSError` while there is none."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}api/status", timeout=2) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def shown(columns: tuple[str, ...]) -> tuple[int, ...]:
    """Which columns the summary shows, by position."""
    return tuple(index for index, column in enumerate(columns) if column not in _HIDDEN)


def cell(value: object) -> str:
    """One value of a fleet row, short."""
    if value is None:
        return "–"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%H:%M:%S")
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:,.5g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
