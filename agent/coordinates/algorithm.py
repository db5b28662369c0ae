"""The interface of a coordinate algorithm, and what it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

Coordinate = tuple[float, ...]
"""Numbers as the algorithm packs them; the first ones are the point, in milliseconds."""
LEAST_RTT_MS: Final = 1e-3
"""Round-trip times below are taken as this: their logarithm must stay finite."""
GREATEST_RTT_MS: Final = 60_000.0


@dataclass(frozen=True, slots=True)
class Observation:
    """One peer in one round: its coordinate, and the filtered round-trip time to it."""

    peer: str
    coordinate: Coordinate
    rtt_ms: float


class Algorithm(Protocol):
    """One board's part of a coordinate system."""

    @property
    def coordinate(self) -> Coordinate:
        """Our own coordinate."""
        ...

    def update(self, observations: Sequence[Observation]) -> None:
        """Take in the observations of one round. Those whose values cannot be are left out."""
        ...

    def estimate_ms(self, first: Coordinate, second: Coordinate) -> float:
        """Estimated round-trip time between two boards. Infinite if one of the coordinates is not of this algorithm."""
        ...


def usable(observation: Observation, length: int) -> bool:
    """True if a peer's observation can be of this coordinate system. (Its numbers were checked to be finite and
    bounded.)"""
    return len(observation.coordinate) == length and 0 < observation.rtt_ms <= GREATEST_RTT_MS
