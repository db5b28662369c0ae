"""What a driver is. One file per engine; third parties add theirs by an entry point.

A driver reads what an engine says of itself in public (a socket, a REST interface, names of threads), and changes
nothing in it. It reports physical operators with their threads, the graph between them, and those metrics of
`agent.osched.metric_graph.METRICS` that the engine gives. Everything else is computed from these.

    [project.entry-points."edgert.drivers"]
    myengine = "my_package:make"          # make(address: str) -> Driver

The setting `sched.drivers` then takes `myengine=ADDRESS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Final, Protocol, runtime_checkable

from agent.drivers.entities import Report
from edgert.core.errors import EdgertError

GROUP: Final = "edgert.drivers"


class DriverError(EdgertError):
    """An engine does not answer, or not as expected; the message names the engine and its address."""


class Driver(Protocol):
    """One engine."""

    @property
    def name(self) -> str:
        """For people and logs; unique among the drivers of an agent."""
        ...

    async def report(self) -> Report:
        """A fresh look. Raises `DriverError`; the engine's threads then keep their values for some seconds."""
        ...

    async def close(self) -> None:
        """Give up connections."""
        ...


@runtime_checkable
class Weighing(Protocol):
    """A driver of an engine with a pool of its own, which takes weights."""

    async def weigh(self, flow: str, weights: Mapping[str, float]) -> None:
        """Set the weights of a flow's instances. Raises `DriverError`."""
        ...


Make = Callable[[str], Driver]
"""Address -> driver."""


def built_in() -> dict[str, Make]:
    """The drivers that come with the agent. Each is imported when it is made."""

    def edgert(address: str) -> Driver:
        from agent.drivers.edgert import EdgertDriver

        return EdgertDriver(address)

    def flink(address: str) -> Driver:
        from agent.drivers.flink import FlinkDriver

        return FlinkDriver(address)

    return {"edgert": edgert, "flink": flink}


def make(text: str) -> Driver:
    """The driver that a setting `KIND=ADDRESS` names. Raises `DriverError`."""
    kind, equals, address = text.partition("=")
    makes = built_in()
    if kind not in makes:
        makes |= {point.name: point.load() for point in entry_points(group=GROUP) if point.name == kind}
    if kind not in makes or not equals:
        raise DriverError(f"sched.drivers: expected KIND=ADDRESS with KIND one of {', '.join(makes)}, got {text!r}")
    return makes[kind](address)
