"""Only one holds a lease."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgert.central.fleet.merge import WindowMerge
from edgert.central.tables.lease import LeaseLost, TableLease, own_name
from edgert.central.tables.table import TableError
from edgert.core.clock import VirtualClock
from tests.central.results_examples import SCHEMA
from tests.waiting import wait_until


def lease(root: Path, holder: str, clock: VirtualClock, duration_s: float = 60.0) -> TableLease:
    return TableLease(str(root), "fleet", holder, duration_s, clock.wall, clock.monotonic)


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


def test_two_of_one_host_and_process_number_are_two_holders(tmp_path: Path) -> None:
    """As two containers may be."""
    clock = VirtualClock()
    one, two = lease(tmp_path, own_name(), clock), lease(tmp_path, own_name(), clock)
    one.acquire()
    with pytest.raises(LeaseLost, match="held by"):
        two.acquire()


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
    clock.set_wall(0)  # it is free on any clock
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


@pytest.mark.parametrize("step_s", [3600, -3600])
def test_a_holder_s_clock_may_step(tmp_path: Path, step_s: float) -> None:
    clock = VirtualClock()
    one = lease(tmp_path, "one", clock)
    one.acquire()
    clock.set_wall(clock.wall() + step_s)
    clock.advance(40)
    one.hold()
    clock.advance(59)
    one.hold()
    clock.advance(60)
    with pytest.raises(LeaseLost, match="ran out"):
        one.hold()


def test_a_dead_holder_whose_clock_ran_ahead_is_waited_for_no_longer_than_any(tmp_path: Path) -> None:
    ahead, clock = VirtualClock(wall=1_700_003_600.0), VirtualClock()
    one, two = lease(tmp_path, "one", ahead), lease(tmp_path, "two", clock)
    one.acquire()
    for _ in range(3):  # while it lives its token moves
        with pytest.raises(LeaseLost, match="held by one"):
            two.acquire()
        clock.advance(45)
        ahead.advance(45)
        one.hold()
    with pytest.raises(LeaseLost):
        two.acquire()
    clock.advance(59)
    with pytest.raises(LeaseLost):
        two.acquire()
    clock.advance(1)
    two.acquire()
    with pytest.raises(LeaseLost, match="taken by another"):
        one.hold()


def test_it_is_kept_while_the_holder_is_busy(tmp_path: Path) -> None:
    clock = VirtualClock()
    one, two = lease(tmp_path, "one", clock, 0.6), lease(tmp_path, "two", clock, 0.6)
    with one.kept():
        one.acquire()
        for _ in range(4):
            before = one.token
            clock.advance(0.4)
            wait_until(lambda: one.token > before, "the lease to be prolonged")  # noqa: B023
        with pytest.raises(LeaseLost):
            two.acquire()
        one.release()
    two.acquire()
    with one.kept(), pytest.raises(LeaseLost):
        one.hold()


@pytest.mark.parametrize("put_back", [False, True])
def test_who_has_a_lease_that_counts_anew_writes_all_the_same_and_nobody_else_does(
    tmp_path: Path, put_back: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The folder `leases` was removed, or put back from an older copy, while a fleet table has its tokens."""
    clock, root = VirtualClock(), tmp_path / "root"
    uri, other_uri = str(root / "fleet" / "air"), str(root / "fleet" / "water")
    old = lease(root, "old", clock)
    old.acquire()
    shutil.copytree(root / "leases", tmp_path / "copy")
    for _ in range(5):
        clock.advance(40)
        old.hold()
    zombies = [WindowMerge(u, old) for u in (uri, other_uri)]
    for zombie in zombies:
        zombie.widen(SCHEMA)
    shutil.rmtree(root / "leases")
    if put_back:
        shutil.copytree(tmp_path / "copy", root / "leases")
    clock.advance(30)
    new = lease(root, "new", clock)
    new.acquire()
    assert new.token < old.token
    tables = [WindowMerge(u, new) for u in (uri, other_uri)]
    for table in tables:
        table.widen(SCHEMA)
    assert new.token > old.token
    assert "removed or put back" in caplog.text
    new.hold()
    for zombie in zombies:
        with pytest.raises(LeaseLost, match="written by another since"):
            zombie._next()
    with pytest.raises((LeaseLost, TableError)):  # first its handle finds the log shorter than it was
        old.rise_above(100)
    with pytest.raises(LeaseLost, match="taken by another"):
        old.rise_above(100)
    new.release()
    last = lease(root, "last", clock)
    last.acquire()
    WindowMerge(uri, last).widen(SCHEMA)
    assert caplog.text.count("removed or put back") == 1
