"""Claim: flows without input cost a gateway at most a hundredth of a core, and one of them few wake-ups."""

from __future__ import annotations

from benchmarks.idle.measure import BENCHMARK

__all__ = ["BENCHMARK"]
