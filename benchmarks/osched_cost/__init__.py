"""What OS scheduling itself takes: CPU, memory, and time from metrics to actions, at a hundred operators."""

from __future__ import annotations

from benchmarks.osched_cost.measure import BENCHMARK

__all__ = ["BENCHMARK"]
