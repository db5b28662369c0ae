"""The clocks."""

from __future__ import annotations

import pytest

from edgert.core.clock import Clock, VirtualClock
from edgert.core.system_clock import SystemClock


def test_virtual_clock_moves_only_when_told() -> None:
    clock = VirtualClock(wall=100.0, monotonic=5.0)
    assert (clock.wall(), clock.monotonic()) == (100.0, 5.0)
    clock.advance(2.5)
    assert (clock.wall(), clock.monotonic()) == (102.5, 7.5)


def test_wall_clock_may_jump_while_monotonic_goes_on() -> None:
    clock = VirtualClock(wall=100.0)
    clock.set_wall(50.0)
    clock.advance(1.0)
    assert (clock.wall(), clock.monotonic()) == (51.0, 1.0)


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="at least 0, got -1"):
        VirtualClock().advance(-1)


def test_system_clock_is_a_clock() -> None:
    clock: Clock = SystemClock()
    first = clock.monotonic()
    assert clock.monotonic() >= first
    assert clock.wall() > 1_700_000_000
