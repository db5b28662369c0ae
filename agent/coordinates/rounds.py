"""When which peers are measured: the rounds of the paper (latency-aware placement, FGCS 2025, §3.4).

A round measures the nearest peers of the last round and as many random ones, a few pings each, then updates the
algorithm with the filtered times. The time between rounds varies, so that boards do not run in step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from agent.coordinates.algorithm import Algorithm, Coordinate, Observation
from agent.coordinates.filter import ApplicationCoordinate, MedianFilter


@dataclass(frozen=True, slots=True)
class RoundParameters:
    """Tunables of the rounds; times in seconds."""

    period_s: float = 10.0
    near: int = 4
    """The i nearest peers of the last round."""
    far: int = 4
    """The j random ones."""
    pings: int = 3
    ping_gap_s: float = 0.2
    jitter: float = 0.25
    """The period varies by this share."""


class Rounds:
    """One board's rounds. The owner sends the pings that `due` names and reports times with `measured`."""

    def __init__(self, algorithm: Algorithm, parameters: RoundParameters, random: Random, now: float) -> None:
        self.algorithm = algorithm
        self.filter = MedianFilter()
        self.application = ApplicationCoordinate()
        self.rounds = 0
        self._parameters = parameters
        self._random = random
        self._seen: dict[str, Coordinate] = {}
        self._measured_now: set[str] = set()
        self._peers: list[str] = []
        self._pings_left = 0
        self.next_due = now + random.random()
        """The monotonic time of the next pings."""

    def due(self, now: float, members: Sequence[str]) -> list[str]:
        """The peers to ping now, of `members` (alive, without ourselves); empty while nothing is due."""
        if now < self.next_due:
            return []
        if self._pings_left == 0:
            self._finish()
            self._peers = self._choose(members)
            self._pings_left = self._parameters.pings
        self._pings_left -= 1
        jitter = self._random.uniform(1 - self._parameters.jitter, 1 + self._parameters.jitter)
        self.next_due = now + (self._parameters.ping_gap_s if self._pings_left else self._parameters.period_s * jitter)
        return self._peers

    def measured(self, peer: str, rtt_s: float, coordinate: Coordinate) -> None:
        """A ping to `peer` came back."""
        self.filter.add(peer, rtt_s * 1e3)
        if coordinate:
            self._seen[peer] = coordinate
        self._measured_now.add(peer)

    def forget(self, peer: str) -> None:
        """A member is gone."""
        self.filter.forget(peer)
        self._seen.pop(peer, None)

    def _finish(self) -> None:
        """Update the algorithm with what the last round measured."""
        observations = [
            Observation(peer, self._seen[peer], rtt)
            for peer in sorted(self._measured_now)
            if peer in self._seen and (rtt := self.filter.get(peer)) is not None
        ]
        self._measured_now.clear()
        if observations:
            self.rounds += 1
            self.algorithm.update(observations)
        nearest = min((o.rtt_ms for o in observations), default=None)
        self.application.follow(self.algorithm.coordinate, self.algorithm, nearest)

    def _choose(self, members: Sequence[str]) -> list[str]:
        known = [(rtt, peer) for peer in members if (rtt := self.filter.get(peer)) is not None]
        near = [peer for _, peer in sorted(known)[: self._parameters.near]]
        others = [peer for peer in members if peer not in near]
        wanted = self._parameters.near + self._parameters.far - len(near)
        return near + self._random.sample(others, min(wanted, len(others)))
