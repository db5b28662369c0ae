"""Latency, queues and balance against rate under every scheduling policy and consumption. It claims nothing."""

from __future__ import annotations

from benchmarks.policies.measure import BENCHMARK

__all__ = ["BENCHMARK"]
