"""The interface of a driver. One file per engine; third parties add theirs by an entry point.

A driver reads what an engine says of itself in public (a socket, a REST interface, names of threads), and changes
nothing in it. It reports physical operators with their threads, the graph between them, and those metrics of
`agent.osched.policy.metric_graph.METRICS` that the engine gives. Everything else is computed from these.

    [project.entry-points."edgert.drivers"]
    myengine = "my_package:make"          # make(address: str) -> Driver

The setting `sched.drivers` then takes `myengine=ADDRESS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from agent.drivers.entities import EngineReport
from edgert.core.errors import EdgertError


class DriverError(EdgertError):
    """An engine does not answer, or not as expected; the message names the engine and its address."""


class Driver(Protocol):
    """One engine."""

    @property
    def name(self) -> str:
        """For people and logs; unique among the drivers of an agent."""
        ...

    async def report(self) -> EngineReport:
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
