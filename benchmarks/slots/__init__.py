"""Claim: two slots on two cores bear at least 1.7 times what one bears."""

from __future__ import annotations

from benchmarks.slots.measure import BENCHMARK

__all__ = ["BENCHMARK"]
