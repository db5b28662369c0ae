"""When a key counts as silent, and what a key's newest windows say. Pure: plain values in, plain values out.

A key is judged by the event time of its group (its gateway; of gateways: the fleet), not by a clock on the wall: what
the group sends tells how far it is, and a key of which nothing came up to there is silent. So an outage of a gateway,
of the collector or of this job makes no key silent by itself, until the rule's patience ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

AHEAD_US: Final = 86_400_000_000
"""A window that is further ahead of now is of a wrong clock. A day: a local time without a zone is wrong by less, and
stays so."""


class SeenKey(NamedTuple):
    """A key: end of its last window (event time, µs), and arrival of its last row (ms, by this job's clock). A window
    that ends after its arrival counts as of then, since its clock was ahead."""

    last: int
    arrived: int


@dataclass(frozen=True, slots=True)
class Group:
    """A group: latest end of a window (event time, µs), and arrival of its last row (ms)."""

    clock: int
    arrived: int


@dataclass(frozen=True, slots=True)
class SilenceLimits:
    """A rule's, in ms."""

    after: int
    patience: int


def seen_now(before: SeenKey | None, end: int, now: int) -> SeenKey:
    """The key after a window with this end came at `now` (ms)."""
    last = min(end, now * 1000)
    return SeenKey(last if before is None else max(last, before.last), now)


def as_of(seen: SeenKey, now: int) -> SeenKey:
    """The key without marks that a clock which was ahead has left: a device's, or that of this job."""
    arrived = min(seen.arrived, now)
    return SeenKey(min(seen.last, arrived * 1000), arrived)


def group_as_of(group: Group, now: int) -> Group:
    """The group at the time `now`; see `as_of`."""
    return Group(min(group.clock, now * 1000), min(group.arrived, now))


def heard(group: Group | None, ends: Iterable[int], now: int) -> Group:
    """The group after windows with these ends came at `now` (ms). A window that ends in the future counts as now."""
    clock = min(max(ends), now * 1000)
    return Group(clock if group is None else max(clock, group.clock), now)


def clock_of(group: Group, limits: SilenceLimits, now: int) -> int:
    """Returns how far the group is (µs): as far as it says; as far as the clock on the wall when the patience has
    ended."""
    return max(now * 1000, group.clock) if now - group.arrived >= limits.patience else group.clock


def to_tell(before: SeenKey | None, limits: SilenceLimits, now: int) -> bool:
    """True if it has to be said that a key is heard, of which something came. Another group that heard it before may
    have said that it is silent, though it is not here: at a time that was not past `now`, and only if the windows that
    were there, those seen here among them, were that old."""
    return before is None or before.last + limits.after * 1000 <= now * 1000


def silent(seen: Mapping[str, SeenKey], group: Group, limits: SilenceLimits, now: int) -> list[str]:
    """The keys of which nothing is there for so long, both of their group's time and of ours: what comes late, after an
    outage, is of old windows, but it comes."""
    clock = clock_of(group, limits, now)
    return [
        key
        for key, (last, arrived) in seen.items()
        if last + limits.after * 1000 <= clock and arrived + limits.after <= now
    ]


def look_again(seen: Mapping[str, SeenKey], group: Group, limits: SilenceLimits, now: int) -> int | None:
    """Returns when the next key becomes silent if nothing comes any more (ms); None: there is no key left."""

    def due(key: SeenKey) -> int:
        if key.last + limits.after * 1000 <= group.clock:
            return key.arrived + limits.after
        return max(group.arrived + limits.patience, key.arrived + limits.after, key.last // 1000 + 1 + limits.after)

    return max(min(map(due, seen.values())), now + 1) if seen else None


Window = tuple[int, int, float, float]
"""Start, end (µs), and two numbers that are merged by `MERGES`."""

Pair = tuple[float, float]
MERGES: Final[Mapping[str, Callable[[Pair, Pair], Pair]]] = {
    "count": lambda a, b: (a[0] + b[0], 0.0),
    "sum": lambda a, b: (a[0] + b[0], 0.0),
    "min": lambda a, b: (min(a[0], b[0]), 0.0),
    "max": lambda a, b: (max(a[0], b[0]), 0.0),
    "mean": lambda a, b: (a[0] + b[0], a[1] + b[1]),
}
"""How two contributions to a window become one, by the aggregate's kind. A mean has count and sum."""


def value(kind: str, window: Window) -> float:
    """The value of a window."""
    return window[3] / window[2] if kind == "mean" else window[2]


def not_ahead(windows: Iterable[Window], now: int) -> list[Window]:
    """The windows that begin at most `AHEAD_US` after `now` (ms): others would hide the right ones for years."""
    return [w for w in windows if w[0] <= now * 1000 + AHEAD_US]


def newest(kind: str, known: Sequence[Window], new: Iterable[Window], count: int) -> list[Window]:
    """The newest `count` windows, oldest first, with what came merged in."""
    merged = {(w[0], w[1]): (w[2], w[3]) for w in known}
    oldest = min(merged, default=(0, 0)) if len(merged) >= count else (0, 0)
    for start, end, a, b in new:
        at = (start, end)
        if at in merged:
            merged[at] = MERGES[kind](merged[at], (a, b))
        elif at >= oldest:  # what is older was forgotten: this would be a part of it
            merged[at] = (a, b)
    return [(*at, *merged[at]) for at in sorted(merged)[-count:]]
