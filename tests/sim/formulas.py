"""Formulas of EdgeWise's queueing model (section 5) that simulations are compared with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from edgert.scheduling.profile import UNKNOWN, Profile
from edgert.scheduling.queueing import input_ratios


def demands_s(downstream: Mapping[int, Sequence[int]], profiles: Mapping[int, Profile]) -> dict[int, float]:
    """q_i c_i per instance: CPU seconds that it needs per row that enters the flow."""
    ratios = input_ratios(downstream, profiles)
    return {k: q * profiles.get(k, UNKNOWN).cost_s for k, q in ratios.items()}


def queue_time_s(arrivals_per_s: float, services_per_s: float) -> float:
    """T_Q = λ / (µ (µ - λ)), Poisson arrivals and exponential service (equation 7); infinite if λ ≥ µ."""
    if arrivals_per_s >= services_per_s:
        return math.inf
    return arrivals_per_s / (services_per_s * (services_per_s - arrivals_per_s))
