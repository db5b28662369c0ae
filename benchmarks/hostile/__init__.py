"""Claim: under any one hostile gateway, an honest one hears within two seconds that its results have landed."""

from __future__ import annotations

from benchmarks.hostile.measure import BENCHMARK

__all__ = ["BENCHMARK"]
