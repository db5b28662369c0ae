"""Ways: what lies between an ordered pair of places of a network, from links by the path with the least delay."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edgert.core.errors import EdgertError


class DescriptionError(EdgertError):
    """A fleet or a laboratory cannot be made as described."""


@dataclass(frozen=True, slots=True)
class Way:
    """The way of frames from one port to another."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    """Greatest addition to the delay, drawn evenly for each frame. Frames of a way stay in order."""
    loss: float = 0.0
    """Part of the frames that is lost, 0 to 1."""
    bytes_per_s: float = 0.0
    """Bandwidth; 0: no limit."""
    queue_bytes: int = 262_144
    """Bytes that may wait for the bandwidth; a frame that does not fit is dropped."""
    cut: bool = False


def ways(
    places: Sequence[str], links: Mapping[tuple[str, str], Way], otherwise: Way | None = None
) -> dict[tuple[str, str], Way]:
    """The way of every ordered pair: along the links with the least delay, or `otherwise`. Raises `DescriptionError`
    for a pair with neither."""
    found: dict[tuple[str, str], Way] = {}
    for origin in places:
        reached = _from(origin, links)
        for destination in places:
            if destination == origin:
                continue
            way = reached.get(destination, otherwise)
            if way is None:
                raise DescriptionError(f"expected a path from {origin} to {destination}: add links, or [otherwise]")
            found[origin, destination] = way
    return found


def _from(origin: str, links: Mapping[tuple[str, str], Way]) -> dict[str, Way]:
    """Dijkstra over the delays."""
    found: dict[str, Way] = {}
    heap: list[tuple[float, int, str, Way | None]] = [(0.0, 0, origin, None)]
    count = 0
    while heap:
        _, _, place, way = heapq.heappop(heap)
        if place in found or (place == origin and way is not None):
            continue
        if way is not None:
            found[place] = way
        for (a, b), link in links.items():
            if a == place and b not in found and b != origin:
                count += 1
                longer = link if way is None else in_series(way, link)
                heapq.heappush(heap, (longer.delay_s, count, b, longer))
    return found


def in_series(first: Way, second: Way) -> Way:
    """One way in place of two behind each other: delays add up, the narrower one limits."""
    limited = [way for way in (first, second) if way.bytes_per_s]
    narrow = min(limited, key=lambda way: way.bytes_per_s) if limited else first
    return replace(
        narrow,
        delay_s=first.delay_s + second.delay_s,
        jitter_s=first.jitter_s + second.jitter_s,
        loss=1 - (1 - first.loss) * (1 - second.loss),
        cut=first.cut or second.cut,
    )
