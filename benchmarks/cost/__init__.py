"""Claim: what a message costs, in instructions, is not more than the ledger says: `python -m benchmarks cost`.

`python -m benchmarks.cost` compares the figures with `ledger.jsonl` (as `.ci/run` does), or writes new ones into it.
"""

from __future__ import annotations

from benchmarks.cost.measure import BENCHMARK

__all__ = ["BENCHMARK"]
