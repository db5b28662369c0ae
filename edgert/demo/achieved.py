"""Lately achieved by the demo's sensors and its Spark job: messages taken, rows written. Pure: figures in, faults out.

A process that lives and does nothing has no tick.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SILENT_S: Final = 15.0
"""Sensors that publish each second are silent after so long."""
SILENT_MESSAGES: Final = 3.0
"""Sensors that publish more slowly are silent after the time of so many messages."""
UNWRITTEN_S: Final = 90.0
"""The Spark job writes results some seconds after they have landed; after so long it does not write."""


def sensors_fault(ingest: Mapping[str, Any], rate: float) -> str:
    """Why the sensors do not do their work, from the gateway's status; empty if they do. `rate`: messages per second
    that they publish."""
    age_s = ingest.get("message_age_s")
    if age_s is None or age_s < max(SILENT_S, SILENT_MESSAGES / rate):
        return ""
    return f"the gateway has taken no message for {age_s:.0f} s"


class FleetWrites:
    """Notes which results have landed and when the fleet table was written."""

    def __init__(self) -> None:
        self._acknowledged = self._version = -1
        self._since: float | None = None
        """Monotonic time at which results landed that are not in the fleet table yet."""

    def fault(self, acknowledged: int, version: int, now: float) -> str:
        """Why the Spark job does not do its work; empty if it does. `acknowledged`: batches that have landed;
        `version`: of the fleet table."""
        if version != self._version:
            self._since = None
        elif acknowledged > self._acknowledged and self._since is None:
            self._since = now
        self._acknowledged, self._version = acknowledged, version
        if self._since is None or now - self._since < UNWRITTEN_S:
            return ""
        return f"results have landed, and the fleet table was not written for {now - self._since:.0f} s"
