"""The sketches of windows, in the sizes that all tables share. Imported where a window has one: it brings numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edgert.core.results.result_schema import HLL_LG_K, KLL_K, QUANTILES, THETA_LG_K
from edgert.sketches.mergeable import Hll, Kll, Mergeable, Theta

KINDS: Final[Mapping[str, Mergeable]] = {"hll": Hll(HLL_LG_K), "theta": Theta(THETA_LG_K), "kll": Kll(KLL_K, QUANTILES)}
