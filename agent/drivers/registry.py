"""Which drivers there are: those of this folder, and those of other packages by entry point."""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib.metadata import entry_points
from typing import Final

from agent.drivers.base import Driver, DriverError

GROUP: Final = "edgert.drivers"
Make = Callable[[str], Driver]
"""Address -> driver."""


def built_in(users: Collection[int]) -> dict[str, Make]:
    """The drivers that come with the agent. Each is imported when it is made. `users`: see `jvm.ThreadNames`."""

    def edgert(address: str) -> Driver:
        from agent.drivers.edgert import EdgertDriver

        return EdgertDriver(address)

    def flink(address: str) -> Driver:
        from agent.drivers.flink import FlinkDriver

        return FlinkDriver(address, users=users)

    def storm(address: str) -> Driver:
        from agent.drivers.storm import StormDriver

        return StormDriver(address, users=users)

    return {"edgert": edgert, "flink": flink, "storm": storm}


def make(text: str, users: Collection[int] = ()) -> Driver:
    """The driver that a setting `KIND=ADDRESS` names. Raises `DriverError`. `users`: see `jvm.ThreadNames`."""
    kind, equals, address = text.partition("=")
    makes = built_in(users)
    if kind not in makes:
        makes |= {point.name: point.load() for point in entry_points(group=GROUP) if point.name == kind}
    if kind not in makes or not equals:
        raise DriverError(f"sched.drivers: expected KIND=ADDRESS with KIND one of {', '.join(makes)}, got {text!r}")
    return makes[kind](address)
