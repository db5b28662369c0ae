"""The switch without its door: Ethernet frames between ports, delayed, lost and held up as each way prescribes.

A *way* is an ordered pair of ports: what goes from g1 to g2 has its own delay, loss and bandwidth, apart from what goes
from g2 to g1. Time (seconds, monotonic) and randomness are arguments.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from agent.simulation.described.ways import Way

BURST_BYTES = 2 * 1514
"""Bytes that a way with a bandwidth passes at once after a rest."""


@dataclass(slots=True)
class Figures:
    """Frames of one way."""

    forwarded: int = 0
    bytes: int = 0
    lost: int = 0
    """By `Way.loss`."""
    overflowed: int = 0
    """Dropped for want of room in the queue."""
    cut: int = 0
    """Dropped because the way was cut."""


@dataclass(slots=True)
class _Lane:
    way: Way
    free_at: float = -math.inf
    """When the bandwidth has passed all that waits."""
    last: float = 0.0
    """Arrival of the last frame."""
    figures: Figures = field(default_factory=Figures)


def hardware_address(port: int) -> bytes:
    """The address of the interface at a port, counted from 0: locally administered, 02:00:00:00:00:01 and so on."""
    return b"\x02" + (port + 1).to_bytes(5, "big")


class Switch:
    """Forwards by hardware address; what goes to a group (ARP, mDNS) is forwarded to all other ports."""

    def __init__(
        self, ports: Sequence[str], ways: Mapping[tuple[str, str], Way], draw: Callable[[], float] = random.random
    ) -> None:
        """`ways`: of every ordered pair of ports. `draw`: a number from 0 to below 1."""
        self.ports = tuple(ports)
        self._draw = draw
        self._number = {name: number for number, name in enumerate(self.ports)}
        self._at = {hardware_address(number): number for number in range(len(self.ports))}
        pairs = [(a, b) for a in range(len(self.ports)) for b in range(len(self.ports)) if a != b]
        self._lanes = {(a, b): _Lane(ways[self.ports[a], self.ports[b]]) for a, b in pairs}
        self._under_way: list[tuple[float, int, int, bytes]] = []
        self._count = 0
        self.unknown = 0
        """Frames that were no frames, or went to an address of no port."""

    def way(self, origin: str, destination: str) -> Way:
        return self._lane(origin, destination).way

    def set_way(self, origin: str, destination: str, way: Way) -> None:
        """From the next frame on. Raises `KeyError` for a port that is not there."""
        self._lane(origin, destination).way = way

    def figures(self) -> dict[str, dict[str, int]]:
        """ "origin destination" → counters."""
        return {f"{self.ports[a]} {self.ports[b]}": asdict(lane.figures) for (a, b), lane in self._lanes.items()}

    def receive(self, port: int, frame: bytes, now: float) -> None:
        """Takes a frame that came in at a port."""
        if len(frame) < 14:
            self.unknown += 1
        elif frame[0] & 1:
            for other in range(len(self.ports)):
                if other != port:
                    self._forward(port, other, frame, now)
        elif (to := self._at.get(frame[:6])) is not None and to != port:
            self._forward(port, to, frame, now)
        else:
            self.unknown += 1

    def due(self, now: float) -> list[tuple[int, bytes]]:
        """The frames that leave by now, as (port, frame), in the order of their times."""
        out = []
        while self._under_way and self._under_way[0][0] <= now:
            _, _, port, frame = heapq.heappop(self._under_way)
            out.append((port, frame))
        return out

    @property
    def next_at(self) -> float | None:
        """When the next frame leaves; None: nothing is under way."""
        return self._under_way[0][0] if self._under_way else None

    def _lane(self, origin: str, destination: str) -> _Lane:
        return self._lanes[self._number[origin], self._number[destination]]

    def _forward(self, port: int, to: int, frame: bytes, now: float) -> None:
        lane = self._lanes[port, to]
        way, figures = lane.way, lane.figures
        if way.cut:
            figures.cut += 1
            return
        if way.loss and self._draw() < way.loss:
            figures.lost += 1
            return
        sent = now
        if way.bytes_per_s:
            # a token bucket as one number: it is full when `free_at` lies a burst's time in the past
            begins = max(lane.free_at, now - BURST_BYTES / way.bytes_per_s)
            if (begins - now) * way.bytes_per_s + len(frame) > way.queue_bytes:
                figures.overflowed += 1
                return
            lane.free_at = begins + len(frame) / way.bytes_per_s
            sent = max(now, lane.free_at)
        jitter = self._draw() * way.jitter_s if way.jitter_s else 0.0
        lane.last = max(lane.last, sent + way.delay_s + jitter)
        figures.forwarded += 1
        figures.bytes += len(frame)
        self._count += 1
        heapq.heappush(self._under_way, (lane.last, self._count, to, frame))
