"""Claim: the engine costs at most a quarter more than a bare loop, and bears more than a thread per operator does."""

from __future__ import annotations

from benchmarks.riotbench.measure import BENCHMARK

__all__ = ["BENCHMARK"]
