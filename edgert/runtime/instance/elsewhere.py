"""Stands for the logic of an operator that runs in another process: it takes nothing, and holds nothing in memory.

The graph of a flow is built whole in each process that it runs in, and in the daemon that feeds them. What all of them
use of it is real everywhere: sources (what is known of devices), chains (models are checked by them) and our sinks.
"""

from __future__ import annotations

from edgert.flow.plan import PhysicalInstance
from edgert.flow.spec import Registry
from edgert.operators.base.logic import Logic


class Elsewhere(Logic):
    """The stand-in for an operator of this library that runs in another process."""


class TheirsElsewhere(Elsewhere):
    """The stand-in for a package's operator, and treated as one: see `edgert.operators.base.logic.foreign`."""

    __module__ = "elsewhere"


def stands_for(planned: PhysicalInstance, registry: Registry) -> Logic | None:
    """The stand-in for the logic of one planned, unfused instance; None if the real logic is needed."""
    ours = registry[planned.nodes[0].type].ours
    if planned.kind in ("source", "stateless") or (ours and planned.kind == "sink"):
        return None
    return Elsewhere() if ours else TheirsElsewhere()
