"""Devices that a source does not hear any more."""

from __future__ import annotations

import math

from edgert.operators.sources.device_watermarks import Devices
from edgert.operators.sources.silent_devices import FORGOTTEN_S, LATELY_S, MOST, SilentDevices


def test_a_device_is_silent_after_a_quarter_of_an_hour_and_forgotten_after_a_day() -> None:
    devices = Devices(0.0, idle_timeout_s=30.0)
    devices.observe({"a": 1.0, "b": 1.0}, now=0.0)
    devices.observe({"a": 2.0}, now=40.0)
    assert devices.expire(40.0) == ["b"]

    def plain(now: float) -> dict[str, object]:
        return devices.silent.plain(len(devices.latest), now)

    assert plain(60.0) == {"lately": 2, "silent": 0, "named": []}, "it holds no window back, and is heard of late"
    assert plain(LATELY_S) == {"lately": 1, "silent": 1, "named": [["b", LATELY_S]]}
    assert plain(FORGOTTEN_S)["silent"] == 0
    devices.observe({"b": 3.0}, now=LATELY_S + 1)
    assert plain(LATELY_S + 1) == {"lately": 2, "silent": 0, "named": []}


def test_the_newest_silent_ones_are_named_and_their_number_is_bounded() -> None:
    silent = SilentDevices()
    silent.add((f"d{number}", float(number)) for number in range(MOST + 50))
    found = silent.plain(0, LATELY_S + MOST + 100)
    assert found["silent"] == MOST
    assert [name for name, _ in found["named"]] == [f"d{MOST + 49 - at}" for at in range(3)]
    assert silent.plain(0, -math.inf)["silent"] == 0
