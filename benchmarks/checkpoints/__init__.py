"""Claim: a checkpoint costs little throughput, stops its flow for milliseconds, writes little, and is soon read."""

from __future__ import annotations

from benchmarks.checkpoints.measure import BENCHMARK

__all__ = ["BENCHMARK"]
