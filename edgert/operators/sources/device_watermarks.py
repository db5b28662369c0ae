"""The devices that a source hears, and the watermark that follows from their times.

Copies of a source hear different devices, yet their watermark is one: a copy that hears nobody must hold nothing back,
and whether a device is far behind is a question to all. So each copy puts what it knows of its own devices on a board
that all of them read. One that lags behind sees there what the others knew when the messages that it is at arrived, not
what they know now; and its consumers take the smallest watermark of all copies, so they wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple

from edgert.core.batch import NO_WATERMARK
from edgert.core.text.long_text import beyond_short
from edgert.operators.base.memory import MemoryBudget
from edgert.operators.sources.silent_devices import SilentDevices
from edgert.operators.state.bounded_keys import MAX_KEYS, PORTIONS

MEMORY_BYTES: Final = 48 << 20
"""For the devices of one source."""
DEVICE_BYTES: Final = 400
"""Bytes of a device with a name of up to 64 letters, as measured."""
STILL_S: Final = 90.0
"""A device that sends for so long should have sent a newer time: more than a minute, as some clocks have no seconds."""
HISTORY: Final = 64
"""Standings that a copy leaves on the board; one that lags behind the oldest of another waits with its watermark."""


class CopyStanding(NamedTuple):
    """Watermark figures of one copy of a source after a batch."""

    oldest: float = math.inf
    """Smallest of the newest event times of its active devices; infinite if there are none."""
    greatest: float = NO_WATERMARK
    """Newest event time of any device so far."""
    last_heard: float = 0.0
    """Monotonic seconds."""
    arrival: float = -math.inf
    """Arrival of the batch, monotonic seconds."""


Standings = list[tuple[CopyStanding, ...]]
"""The last standings of each copy. Copies may run on several threads: each writes its own entry, and nothing that
stands there is changed."""


def new_board(copies: int) -> Standings:
    """A board on which nobody has heard of any device."""
    return [(CopyStanding(),)] * copies


@dataclass(slots=True)
class Devices:
    """Event time per device, and the watermark that follows from it (all in seconds since the epoch)."""

    out_of_order_s: float
    idle_timeout_s: float
    behind_tolerance_s: float = 3600.0
    """A device further behind the newest time holds nothing back; its rows are late."""
    latest: dict[str, float] = field(default_factory=dict)
    """Newest event time of each active device."""
    heard: dict[str, float] = field(default_factory=dict)
    """Monotonic time at which the last message of each active device arrived."""
    watermark: float = NO_WATERMARK
    greatest: float = NO_WATERMARK
    """Newest event time of any device so far."""
    last_heard: float = 0.0
    moved_at: float = math.inf
    """Arrival of the batch that moved the watermark last; infinite before any did."""
    board: Standings = field(default_factory=lambda: new_board(1))
    seat: int = 0
    """Number of this copy's place on the shared board."""
    memory: MemoryBudget = field(default_factory=MemoryBudget, compare=False)
    """The source's part of its flow's budget."""
    silent: SilentDevices = field(default_factory=SilentDevices, compare=False)
    _most: int = 0
    """Devices that `latest` has room for."""
    _beyond_bytes: int = 0
    """Additional bytes of longer names."""

    def observe(self, latest: Mapping[str, float], now: float) -> None:
        """Takes the newest event times of devices that were heard at `now`; `greatest` is up to the caller."""
        self.add(latest)
        self.silent.back(latest)
        self.heard.update(dict.fromkeys(latest, now))
        self.last_heard = now

    def add(self, latest: Mapping[str, float]) -> None:
        """Takes the newest event times of devices, as `observe` and a checkpoint have them."""
        self._beyond_bytes += sum(map(beyond_short, latest.keys() - self.latest.keys()))
        self.latest.update(latest)
        self._most = max(self._most, len(self.latest))

    def remove(self, devices: Iterable[str]) -> None:
        """Forgets devices."""
        for device in devices:
            if self.latest.pop(device, None) is not None:
                self._beyond_bytes -= beyond_short(device)
            self.heard.pop(device, None)
        if len(self.latest) < self._most // 4:  # a dict keeps the room that it had
            self.latest, self.heard, self._most = dict(self.latest), dict(self.heard), len(self.latest)
        self.memory.own_bytes = self._held_bytes()

    def _held_bytes(self) -> int:
        return DEVICE_BYTES * len(self.latest) + self._beyond_bytes

    def too_many(self) -> list[str]:
        """Takes out the devices that were heard longest ago, at least a hundredth, if there are more than may be, and
        names them."""
        room = self.memory.room_for(self._held_bytes())
        most = max(1, min(MAX_KEYS, int(min(MEMORY_BYTES, room) - self._beyond_bytes) // DEVICE_BYTES))
        beyond = len(self.latest) - most
        if beyond <= 0:
            return []
        heard = self.heard
        gone = sorted(self.latest, key=lambda device: heard.get(device, -math.inf))[: max(beyond, most // PORTIONS)]
        self.remove(gone)
        return gone

    def expire(self, now: float) -> list[str]:
        """Takes out devices silent for longer than the time-out and names them."""
        limit = now - self.idle_timeout_s
        idle = {device: heard for device, heard in self.heard.items() if heard < limit}
        self.remove(idle)
        self.silent.add(idle.items())
        return list(idle)

    def take_back(self, limit: float) -> list[str]:
        """The clock was ahead: times beyond `limit` are forgotten, and the watermark that they led to. Returns the
        devices whose times these were."""
        gone = [device for device, time in self.latest.items() if time > limit]
        self.remove(gone)
        self.greatest = max(self.latest.values(), default=NO_WATERMARK)
        self.watermark = NO_WATERMARK
        return gone

    def sit(self, arrival: float) -> CopyStanding:
        """Tells the other copies of its devices, as they are after a batch that arrived at `arrival`."""
        own = CopyStanding(min(self.latest.values(), default=math.inf), self.greatest, self.last_heard, arrival)
        if len(self.board) > 1:
            self.board[self.seat] = (*self.board[self.seat][1 - HISTORY :], own)
        return own

    def advance(self, arrival: float, limit: float = math.inf) -> float:
        """The watermark after a batch that arrived at `arrival`; it never goes back. Copies that have heard of times
        beyond `limit` have not taken them back yet: a clock was ahead, and nothing follows from them."""
        own = self.sit(arrival)
        others = self._others(arrival, limit)
        if others is None:
            return self.watermark
        board = [own, *others]
        greatest = max([standing.greatest for standing in board])
        oldest = min([standing.oldest for standing in board])
        if oldest < math.inf:
            limit = greatest - self.behind_tolerance_s
            if oldest < limit:  # a device whose clock was never set, or that sends what it kept: it is late, not slow
                oldest = self._oldest_since(limit, others)
            mark = oldest - self.out_of_order_s
        elif greatest > NO_WATERMARK:
            silent = arrival - max([standing.last_heard for standing in board]) - self.idle_timeout_s
            mark = greatest - self.out_of_order_s + max(0.0, silent)
        else:
            return self.watermark
        if mark > self.watermark:
            self.watermark, self.moved_at = mark, arrival
        return self.watermark

    def still(self) -> tuple[float, float, str] | None:
        """Seconds for which the device that holds the watermark back has sent rows since that moved, the device's
        newest time, and its name; None while that is not for long. A device that sends rarely is not meant."""
        if self.last_heard - self.moved_at < STILL_S:
            return None
        # a copy: another thread may change it meanwhile
        device, time = min(list(self.latest.items()), key=itemgetter(1), default=("", self.greatest))
        seconds = self.heard.get(device, 0.0) - self.moved_at
        is_held_here = time - self.out_of_order_s <= self.watermark  # else by a device of another copy
        return (seconds, time, device) if seconds >= STILL_S and is_held_here else None

    def _others(self, arrival: float, limit: float) -> list[CopyStanding] | None:
        """The standings of the other copies when that batch arrived; None if one of them is too far ahead to tell."""
        standings = []
        for seat, history in enumerate(self.board):
            if seat != self.seat:
                at_that_time = next((s for s in reversed(history) if s.arrival <= arrival), None)
                if at_that_time is None:
                    return None
                standings.append(at_that_time if at_that_time.greatest <= limit else CopyStanding())
        return standings

    def _oldest_since(self, limit: float, others: Iterable[CopyStanding]) -> float:
        """The oldest time since `limit`. An other whose oldest is before `limit` may have a time as old as `limit`."""
        own = min((t for t in self.latest.values() if t >= limit), default=math.inf)
        oldest = min([own, *(max(limit, s.oldest) for s in others if s.oldest < math.inf)])
        return oldest if oldest < math.inf else limit
