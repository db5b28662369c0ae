"""Our slots under the agent's OS scheduling, against the plain OS: 20 synthetic flows on more slots than cores."""

from __future__ import annotations

from benchmarks.osched.measure import BENCHMARK

__all__ = ["BENCHMARK"]
