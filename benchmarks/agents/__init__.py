"""Claim: an agent in a fleet of eleven takes at most 55 MB and a hundredth of a core."""

from __future__ import annotations

from benchmarks.agents.measure import BENCHMARK

__all__ = ["BENCHMARK"]
