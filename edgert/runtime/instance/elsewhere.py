"""Stands for the logic of an operator that runs in another process: it takes nothing, and holds nothing in memory.

The graph of a flow is built whole in each process that it runs in, and in the daemon that feeds them. What all of them
use of it is real everywhere: sources (what is known of devices), chains (models are checked by them) and our sinks.
"""

from __future__ import annotations

from edgert.flow.plan import PhysicalInstance
from edgert.flow.spec import Registry
from edgert.operators.logic import Logic


class Elsewhere(Logic):
    """Of an operator of this library."""


class TheirsElsewhere(Elsewhere):
    """Of a package's, and taken for it: see `edgert.operators.logic.foreign`."""

    __module__ = "elsewhere"


def stands_for(planned: PhysicalInstance, registry: Registry) -> Logic | None:
    """What stands for the logic of one planned instance, which is not fused of several; None where it is real."""
    ours = registry[planned.nodes[0].type].ours
    if planned.kind in ("source", "stateless") or (ours and planned.kind == "sink"):
        return None
    return Elsewhere() if ours else TheirsElsewhere()
