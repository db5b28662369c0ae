"""State of the alert job's streams between batches: Spark's stateful processors, in its state store.

They run in Spark's Python workers; all that they decide is in `silence.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from edgert.central.alerts import silence
from edgert.central.alerts.silence import Group, SeenKey, SilenceLimits

SILENCE_OUT: Final = "key STRING, at BIGINT, since BIGINT"
WINDOWS_OUT: Final = "key STRING, since BIGINT, at BIGINT, values ARRAY<DOUBLE>"


class Silence(StatefulProcessor):
    """Per group: which keys were heard, and when. In: `key`, `ends` (µs). Out: a key that is new, came back or may
    count as silent elsewhere (`since` is null), or one that is silent since its last window. Without a key: `at` is how
    many windows are ahead of now."""

    def __init__(self, limits: SilenceLimits) -> None:
        self._limits = limits

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._seen = handle.getMapState("seen", "key STRING", "last BIGINT, arrived BIGINT")
        self._group = handle.getValueState("group", "clock BIGINT, arrived BIGINT, timer BIGINT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        now = timerValues.getCurrentProcessingTimeInMs()
        ends: dict[str, int] = {}
        ahead = 0
        for row in rows:
            ends[row.key] = max(row.ends, ends.get(row.key, row.ends))
            ahead += row.ends > now * 1000 + silence.AHEAD_US
        if ahead:
            yield Row(key=None, at=ahead, since=None)
        known = self._group.get()
        before = silence.group_as_of(Group(known[0], known[1]), now) if known else None
        group = silence.heard(before, ends.values(), now)
        seen = self._all(now)
        for name, end in ends.items():
            if silence.to_tell(seen.get(name), self._limits, now):
                yield Row(key=name, at=min(end, now * 1000), since=None)
            seen[name] = silence.seen_now(seen.get(name), end, now)
            self._seen.updateValue((name,), tuple(seen[name]))
        yield from self._judge(seen, group, known[2] if known else None, now)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        known = self._group.get()
        if known:
            now = timerValues.getCurrentProcessingTimeInMs()
            group = silence.group_as_of(Group(known[0], known[1]), now)
            yield from self._judge(self._all(now), group, None, now)

    def close(self) -> None:
        pass

    def _all(self, now: int) -> dict[str, SeenKey]:
        kept = {name[0]: SeenKey(*when) for name, when in self._seen.iterator()}
        seen = {name: silence.as_of(key, now) for name, key in kept.items()}
        for name in [name for name in seen if seen[name] != kept[name]]:
            self._seen.updateValue((name,), tuple(seen[name]))
        return seen

    def _judge(self, seen: dict[str, SeenKey], group: Group, timer: int | None, now: int) -> Iterator[Row]:
        clock = silence.clock_of(group, self._limits, now)
        for name in silence.silent(seen, group, self._limits, now):
            yield Row(key=name, at=clock, since=seen.pop(name).last)
            self._seen.removeKey((name,))
        if timer:
            self._handle.deleteTimer(timer)
        again = silence.look_again(seen, group, self._limits, now)
        if again is not None:
            self._handle.registerTimer(again)
        self._group.update((group.clock, group.arrived, again or 0))


class Windows(StatefulProcessor):
    """Per key: its newest windows. In: `starts`, `ends` (µs), `a`, `b` (see `silence.MERGES`). Out: the values of the
    newest `count` windows, `since` the start of the first and `at` the end of the last of them. Without values: `at` is
    how many windows are left out, since they are ahead of now."""

    def __init__(self, kind: str, count: int, wall: Callable[[], float] = time.time) -> None:
        self._kind = kind
        self._count = count
        self._wall = wall

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._windows = handle.getValueState("windows", "windows STRING")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        known = self._windows.get()
        now = round(self._wall() * 1000)
        came = [(row.starts, row.ends, row.a, row.b) for row in rows]
        new = silence.not_ahead(came, now)
        if len(new) < len(came):
            yield Row(key=key[0], since=None, at=len(came) - len(new), values=None)
        before = silence.not_ahead(json.loads(known[0]) if known else [], now)
        # Two more than are needed: contributions to a window that come late still find it.
        kept = silence.newest(self._kind, before, new, self._count + 2)
        self._windows.update((json.dumps(kept),))
        if not kept:
            return
        told = kept[-self._count :]
        values = [silence.value(self._kind, window) for window in told]
        yield Row(key=key[0], since=told[0][0], at=told[-1][1], values=values)

    def close(self) -> None:
        pass
