"""The benchmark of slots, in short: real slots, fed in their own processes."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.slots import host

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


def test_both_slots_work_and_all_that_they_take_reaches_the_sinks() -> None:
    told = asyncio.run(host.measure("pred", 2, 0.1, 0.2))
    assert len(told["rates"]) == 2
    assert min(told["rates"]) > 100
    assert max(told["rss_mb"]) < 100
    assert told["cpu_us"] > 0
