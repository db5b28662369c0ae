"""Flows in this process."""

from __future__ import annotations

import pytest

from edgert.core.clock import VirtualClock
from edgert.runtime.pool.pool import Pool
from gateway.hosts.in_process import InProcess


def test_the_policy_is_told_what_operators_cost_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    pool = Pool(clock)
    told: list[float] = []
    monkeypatch.setattr(pool, "profile", lambda: told.append(clock.monotonic()))
    host = InProcess(pool, clock)
    began = clock.monotonic()
    for _ in range(13):
        host.tick([])
        clock.advance(0.25)
    assert [at - began for at in told] == [0.0, 1.0, 2.0, 3.0]
