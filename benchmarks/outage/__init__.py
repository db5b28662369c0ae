"""Claim: after a day's outage the backlog lands within five minutes, and new results land within two seconds."""

from __future__ import annotations

from benchmarks.outage.measure import BENCHMARK

__all__ = ["BENCHMARK"]
