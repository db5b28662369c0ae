"""Devices that a source has not heard for a while, for people: a sensor that is silent is what they look for first.

A source forgets a device after its time-out, so that no window waits for it. Its name and when it was heard last stay
here for a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

LATELY_S: Final = 900.0
"""A device that was heard within this time is not silent: many report each ten minutes."""
FORGOTTEN_S: Final = 86_400.0
"""A device that was not heard for so long is no device of this board any more."""
MOST: Final = 1_000
"""Devices that are remembered; of more the ones that fell silent first are forgotten, and counted no more."""
NAMED: Final = 3


class SilentDevices:
    """Written by the worker that runs the source, read by any thread."""

    def __init__(self) -> None:
        self._heard: dict[str, float] = {}
        """Device → when it was heard last, monotonic seconds; in the order in which they fell silent."""

    def add(self, devices: Iterable[tuple[str, float]]) -> None:
        """Devices were not heard for the time-out of the source."""
        for device, heard in devices:
            self._heard.pop(device, None)
            self._heard[device] = heard
        while len(self._heard) > MOST:
            del self._heard[next(iter(self._heard))]

    def back(self, devices: Mapping[str, object]) -> None:
        """Devices were heard."""
        if self._heard:
            for device in self._heard.keys() & devices.keys():
                del self._heard[device]

    def plain(self, active: int, now: float) -> dict[str, Any]:
        """For the status: the number of devices heard `lately`, of `silent` ones, and names of the latter with how long
        they are silent, seconds. `active`: devices that the source has heard within its time-out."""
        ages = [(device, now - heard) for device, heard in list(self._heard.items())]
        silent = sorted((one for one in ages if LATELY_S <= one[1] < FORGOTTEN_S), key=lambda one: one[1])
        lately = active + sum(age < LATELY_S for _, age in ages)
        return {"lately": lately, "silent": len(silent), "named": [[name, round(age)] for name, age in silent[:NAMED]]}
