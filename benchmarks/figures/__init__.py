"""Claim: to read all raw figures of 300 instances over the control socket costs at most 5 ms."""

from __future__ import annotations

from benchmarks.figures.measure import BENCHMARK

__all__ = ["BENCHMARK"]
