"""The watermark of copies of a source: that of the devices of all of them."""

from __future__ import annotations

import math

from edgert.core.batch import NO_WATERMARK
from edgert.operators.sources.device_watermarks import HISTORY, Devices, new_board


def copies(number: int, behind_tolerance_s: float = 3600.0) -> list[Devices]:
    board = new_board(number)
    made = [Devices(2.0, 30.0, behind_tolerance_s) for _ in range(number)]
    for seat, devices in enumerate(made):
        devices.board, devices.seat = board, seat
    return made


def hear(devices: Devices, now: float, **latest: float) -> None:
    devices.observe(latest, now)
    devices.greatest = max(devices.greatest, *latest.values())


def test_a_copy_that_hears_nobody_tells_the_others_time() -> None:
    one, two, three = copies(3)
    assert two.advance(0.0) == NO_WATERMARK
    hear(one, 1.0, a=100.0, b=105.0)
    hear(two, 1.0, c=103.0)
    assert (one.advance(1.0), two.advance(1.0), three.advance(1.0)) == (98.0, 98.0, 98.0)
    hear(one, 2.0, a=120.0, b=120.0)
    assert (one.advance(2.0), three.advance(2.0)) == (101.0, 101.0), "c of the second holds all back"
    assert two.expire(40.0) == ["c"]
    two.advance(40.0)
    assert three.advance(40.0) == 118.0


def test_a_copy_that_lags_behind_takes_what_the_others_knew_when_its_batch_arrived() -> None:
    one, two = copies(2)
    two.advance(0.0)
    for moment in (1.0, 2.0, 3.0):
        hear(one, moment, a=100.0 + moment)
        one.advance(moment)
    assert two.advance(1.5) == 99.0
    assert two.advance(3.0) == 101.0


def test_one_that_lags_behind_all_that_is_remembered_waits() -> None:
    one, two = copies(2)
    hear(one, 1.0, a=100.0)
    for moment in range(1, HISTORY + 2):
        one.advance(float(moment))
    assert len(one.board[0]) == HISTORY
    assert two.advance(1.5) == NO_WATERMARK
    assert two.advance(2.0) == 98.0


def test_a_device_far_behind_holds_nothing_back_whichever_copy_hears_it() -> None:
    one, two = copies(2, behind_tolerance_s=50.0)
    hear(one, 1.0, old=1.0)
    assert one.advance(1.0) == -1.0, "it is the only one"
    hear(two, 2.0, new=1_000.0)
    assert two.advance(2.0) == 1_000.0 - 50.0 - 2.0, "of the other copy only its oldest device is known"
    assert one.advance(2.0) == 998.0


def test_when_all_are_silent_time_goes_on_from_the_newest_of_all() -> None:
    one, two = copies(2)
    hear(one, 1.0, a=100.0)
    hear(two, 5.0, b=90.0)
    for devices in (one, two):
        devices.advance(5.0)
        devices.expire(50.0)
    for moment in (50.0, 51.0):
        found = [devices.advance(moment) for devices in (one, two)]
    assert found == [100.0 - 2.0 + 51.0 - 5.0 - 30.0] * 2
    assert math.isfinite(found[0])


def test_of_two_copies_the_one_that_hears_the_stuck_device_tells_of_it() -> None:
    one, two = copies(2)
    for moment in range(1, 101):
        hear(one, float(moment), stuck=100.0)
        hear(two, float(moment), well=100.0 + moment)
        for devices in (one, two):
            devices.advance(float(moment))
    assert one.still() == (99.0, 100.0, "stuck")
    assert two.still() is None
