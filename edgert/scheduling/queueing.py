"""The queueing model of EdgeWise (section 5): what rate a flow can bear.

Instance i gets q_i rows per row that enters the flow and needs c_i CPU seconds for each (1 / µ_i); of C cores it gets
the weight w_i, Σ w_i = C.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from edgert.scheduling.profile import UNKNOWN, Profile, after_those_they_feed


def input_ratios(downstream: Mapping[int, Sequence[int]], profiles: Mapping[int, Profile]) -> dict[int, float]:
    """q per instance: rows that reach it per row that enters a source. Each source takes all that enters."""
    fed = {j for targets in downstream.values() for j in targets}
    ratios = {k: 0.0 if k in fed else 1.0 for k in downstream}
    for k in reversed(after_those_they_feed(downstream)):
        for j in downstream[k]:
            ratios[j] += ratios[k] * profiles.get(k, UNKNOWN).fed
    return ratios


def balanced_weights(demands: Mapping[int, float], cores: float) -> dict[int, float]:
    """The weights that make the sustainable rate greatest: w_i ∝ q_i c_i (equation 4 and below)."""
    total = sum(demands.values())
    return {k: cores * d / total if total else 0.0 for k, d in demands.items()}


def sustainable_rate(demands: Mapping[int, float], weights: Mapping[int, float]) -> float:
    """Rows per second that may enter before some queue grows for ever: the least w_i / (q_i c_i) (equation 3)."""
    return min((weights[k] / d for k, d in demands.items() if d > 0), default=math.inf)
