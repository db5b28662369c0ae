"""The central side of the boot test, without QEMU: what it says of messages that are lost or counted twice."""

from __future__ import annotations

from images.qemu.central import amiss

MINUTES = (600, 1200)
ALL = {minute + second: 10 for minute in MINUTES for second in range(0, 60, 10)}


def test_all_messages_landed_once_but_for_the_open_window() -> None:
    assert amiss(ALL, MINUTES) == {}
    assert amiss({start: n for start, n in ALL.items() if start != 1250}, MINUTES) == {}


def test_lost_and_doubled_messages_are_told_by_their_window() -> None:
    without = {start: n for start, n in ALL.items() if start != 650}
    assert amiss({**without, 1210: 20, 1220: 9}, MINUTES) == {650: -10, 1210: 10, 1220: -1}


def test_messages_of_other_minutes_are_not_looked_at() -> None:
    assert amiss({**ALL, 0: 99}, MINUTES) == {}
    assert amiss({}, ()) == {}
