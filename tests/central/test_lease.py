"""Only one holds a lease."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgert.central.lease import Lease, LeaseLost
from edgert.core.clock import VirtualClock


def lease(root: Path, holder: str, clock: VirtualClock) -> Lease:
    return Lease(str(root), "fleet", holder, duration_s=60.0, wall=clock.wall)


def test_second_one_waits_until_the_first_ran_out(tmp_path: Path) -> None:
    clock = VirtualClock()
    one, two = lease(tmp_path, "one", clock), lease(tmp_path, "two", clock)
    one.acquire()
    with pytest.raises(LeaseLost, match="held by one until"):
        two.acquire()
    clock.advance(60)
    two.acquire()
    with pytest.raises(LeaseLost, match="ran out"):
        one.hold()
    two.hold()


def test_holding_prolongs(tmp_path: Path) -> None:
    clock = VirtualClock()
    one, two = lease(tmp_path, "one", clock), lease(tmp_path, "two", clock)
    one.acquire()
    for _ in range(5):
        clock.advance(40)
        one.hold()
    with pytest.raises(LeaseLost):
        two.acquire()


def test_released_lease_is_free_at_once(tmp_path: Path) -> None:
    clock = VirtualClock()
    one, two = lease(tmp_path, "one", clock), lease(tmp_path, "two", clock)
    one.acquire()
    one.release()
    two.acquire()
    assert two.token == 3
    with pytest.raises(LeaseLost):
        one.hold()


def test_one_whose_clock_stood_still_learns_that_another_took_it(tmp_path: Path) -> None:
    slow, clock = VirtualClock(), VirtualClock()
    one, two = lease(tmp_path, "one", slow), lease(tmp_path, "two", clock)
    one.acquire()
    clock.advance(61)
    two.acquire()
    with pytest.raises(LeaseLost, match="taken by another"):
        one.hold()
