"""Only one holds a lease."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgert.central.lease import Lease, LeaseLost
from edgert.core.clock import VirtualClock
from tests.waiting import wait_until


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


def test_a_kept_lease_is_prolonged_while_its_holder_does_something_else(tmp_path: Path) -> None:
    clock = VirtualClock()
    one = Lease(str(tmp_path), "fleet", "one", duration_s=4.0, wall=clock.wall)
    one.acquire()
    with one.kept():
        for token in (1, 2, 3):
            assert one.token == token
            clock.advance(3.0)
            wait_until(lambda token=token: one.token > token, "a longer lease")  # type: ignore[misc]
    clock.advance(4.0)
    with pytest.raises(LeaseLost, match="ran out"):
        one.hold()


def test_a_lease_that_is_lost_is_not_taken_back_by_keeping_it(tmp_path: Path) -> None:
    clock = VirtualClock()
    one, two = (Lease(str(tmp_path), "fleet", name, duration_s=0.4, wall=clock.wall) for name in ("one", "two"))
    one.acquire()
    clock.advance(0.4)
    two.acquire()
    with one.kept():
        clock.advance(0.3)
        two.hold()
    with pytest.raises(LeaseLost):
        one.hold()
    two.hold()
