"""In which order results are taken: pure bookkeeping of numbers, without a table, a socket or a clock.

A stream is (gateway, flow, epoch, stream). Its results are taken in order of their sequence. What comes after a gap
is held for a bounded time and within a bound of bytes, then dropped: the gateway's outbox sends it again. Where a gap
does not close in that time, the stream's place is learned anew: another collector may have landed what is missing,
and it would not be sent again then. What was taken already is a duplicate; the collector then only repeats its
acknowledgement. A stream other than 0 waits until its epoch was opened, by sequence 1 of stream 0. A result may stand
for several numbers (a gap), `first` to `sequence`: it comes next when the next number is one of them. `accepted` runs
ahead of the tables: what was taken but could not be committed is taken back by `forget`.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from edgert.central.landing.lru import LruCache

T = TypeVar("T")
SourceKey = tuple[str, str, int, int]
"""(gateway, flow, epoch, stream)."""
LOOK_S: Final = 1.0
"""A stream of which nothing can be held is learned anew at most this often."""
MOST_STREAMS: Final = 100_000
"""Streams whose place is known at a time, about 500 bytes each. One more makes the longest unused be learned anew."""


class Verdict(enum.Enum):
    """The decision on a result that was offered."""

    TAKEN = "taken"
    HELD = "held"
    DUPLICATE = "duplicate"
    FULL = "full"
    """Neither taken nor held, since too much is held already: it has to be sent again."""


@dataclass(slots=True)
class _Held(Generic[T]):
    item: T
    sequence: int
    size: int
    until: float


@dataclass(slots=True)
class _Stream(Generic[T]):
    accepted: int
    held: dict[int, _Held[T]] = field(default_factory=dict)
    """Held results by their first numbers."""


class Acceptance(Generic[T]):
    """Takes items in order per stream. `hold_s` and `hold_bytes` bound what waits behind a gap, over all streams.

    A longer hold spares sending again when results overtake each other; a shorter one spares memory. 0 holds nothing.
    `most_streams` (at least 2) bounds the streams; what is forgotten can be learned again from the tables. `memory_of`
    returns the bytes of memory of an item that is to be held.
    """

    def __init__(
        self,
        hold_s: float,
        hold_bytes: int,
        most_streams: int = MOST_STREAMS,
        memory_of: Callable[[T], int] = lambda item: 0,
    ) -> None:
        self._hold_s = hold_s
        self._hold_bytes = hold_bytes
        self._memory_of = memory_of
        self._streams: LruCache[SourceKey, _Stream[T]] = LruCache(most_streams)
        self._holding: dict[SourceKey, _Stream[T]] = {}
        """Streams of which something is held."""
        self._refused: dict[SourceKey, float] = {}
        """Streams of which something came after a gap and was not held: until when that may go on."""
        self._lost = 0
        """Results held of streams that were forgotten, until `expire` reports them."""
        self._ready: deque[T] = deque()
        self.held_items = 0
        self.held_bytes = 0

    def knows(self, key: SourceKey) -> bool:
        """True if the stream's version was learned."""
        return key in self._streams

    def accepted(self, key: SourceKey) -> int:
        """The last sequence taken of a stream (0: none)."""
        stream = self._streams.get(key)
        return stream.accepted if stream else 0

    def learn(self, key: SourceKey, version: int) -> None:
        """The tables hold the stream up to `version`."""
        stream = self._streams.get(key)
        if stream is None:
            stream = _Stream(version)
            for old, forgotten in self._streams.set(key, stream):
                self._lost += len(forgotten.held)
                self._drop(old, forgotten)
        if version >= stream.accepted:
            stream.accepted = version
            for first in [f for f, held in stream.held.items() if held.sequence <= version]:
                self._release(key, stream, first)
            self._advance(key)

    def offer(self, key: SourceKey, sequence: int, item: T, size: int, now: float, first: int | None = None) -> Verdict:
        """One result of a stream that is known. `size` in bytes, `now` in seconds of a clock that never goes back;
        `first` is the first number that it stands for, None: `sequence` alone."""
        stream = self._streams.get(key)
        if stream is None:
            raise KeyError(key)
        first = sequence if first is None else first
        if sequence <= stream.accepted or first in stream.held:
            return Verdict.DUPLICATE
        if first <= stream.accepted + 1 and self._opened(key):
            stream.accepted = sequence
            self._ready.append(item)
            self._advance(key)
            return Verdict.TAKEN
        if self._hold_s > 0 and self.held_bytes + size <= self._hold_bytes:
            size = max(size, self._memory_of(item))
        if self.held_bytes + size > self._hold_bytes or self._hold_s <= 0:
            self._refused.setdefault(key, now + max(self._hold_s, LOOK_S))
            return Verdict.FULL
        stream.held[first] = _Held(item, sequence, size, now + self._hold_s)
        self._holding[key] = stream
        self.held_items += 1
        self.held_bytes += size
        return Verdict.HELD

    def take(self) -> list[T]:
        """Returns all that was taken since the last call, in an order in which each stream's items may be landed."""
        ready = list(self._ready)
        self._ready.clear()
        return ready

    def expire(self, now: float) -> int:
        """Drop what was held too long, and forget its streams; returns how many were dropped since the last call."""
        stuck = [key for key, stream in self._holding.items() if any(h.until <= now for h in stream.held.values())]
        for key in [*stuck, *(key for key, until in self._refused.items() if until <= now)]:
            self._refused.pop(key, None)
            self._lost += self.forget(key)
        dropped, self._lost = self._lost, 0
        return dropped

    def forget(self, key: SourceKey) -> int:
        """The stream's version has to be learned anew; what was held of it is dropped. Returns how many were."""
        stream = self._streams.pop(key)
        if stream is None:
            return 0
        held = len(stream.held)
        self._drop(key, stream)
        return held

    def forget_gateways(self, gateways: Collection[str]) -> int:
        """Works as `forget`, for all streams of some gateways. What was taken already stays to be taken."""
        for key in [key for key in self._refused if key[0] in gateways]:
            del self._refused[key]
        return sum([self.forget(key) for key in list(self._streams) if key[0] in gateways])

    def _drop(self, key: SourceKey, stream: _Stream[T]) -> None:
        for first in list(stream.held):
            self._release(key, stream, first)

    def _opened(self, key: SourceKey) -> bool:
        return key[3] == 0 or self.accepted((*key[:3], 0)) >= 1

    def _advance(self, key: SourceKey) -> None:
        """Take what was held and has come into order; opening an epoch frees its other streams."""
        self._drain(key)
        if key[3] == 0 and self.accepted(key) >= 1:
            for other in [k for k in self._holding if k[:3] == key[:3] and k != key]:
                self._drain(other)

    def _drain(self, key: SourceKey) -> None:
        stream = self._streams.get(key)
        assert stream is not None, "only what is known is drained"
        while stream.accepted + 1 in stream.held and self._opened(key):
            held = self._release(key, stream, stream.accepted + 1)
            stream.accepted = held.sequence
            self._ready.append(held.item)

    def _release(self, key: SourceKey, stream: _Stream[T], first: int) -> _Held[T]:
        held = stream.held.pop(first)
        if not stream.held:
            self._holding.pop(key, None)
        self.held_items -= 1
        self.held_bytes -= held.size
        return held
