"""The logical graph of a flow: nodes in topological order, as checked from a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgert.flow.options import full_outbox
from edgert.flow.options.delivery import DEFAULT, Delivery
from edgert.flow.options.full_outbox import WhenFull
from edgert.flow.options.on_error import OnError


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of a flow."""

    name: str
    type: str
    parameters: Mapping[str, Any]
    """Every parameter of the operator's specification, defaults filled in, parsed."""
    inputs: tuple[str, ...] = ()
    instances: int = 1
    """How many copies of it the document asks for."""
    slot: int = -1
    """The slot that the document asks for; -1: none."""
    stateless: bool = False
    """True if the operator's specification says so."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A checked flow. `nodes` is in topological order: a node stands after all its inputs."""

    name: str
    nodes: Mapping[str, Node]
    document: Mapping[str, Any]
    """The plain document it came from (JSON types only), as stored and shown."""
    checkpoint_interval_s: float = 5.0
    description: str = ""
    on_error: OnError = OnError()
    when_full: WhenFull = full_outbox.DEFAULT
    delivery: Delivery = DEFAULT
    latency_s: float | None = None
    """Within which time after a row's arrival its results should be out; None: no wish."""

    def outputs(self, name: str) -> tuple[Node, ...]:
        """The nodes that read from `name`."""
        return tuple(n for n in self.nodes.values() if name in n.inputs)

    def edges(self) -> tuple[tuple[str, str], ...]:
        """(from, to) pairs, in topological order of the target."""
        return tuple((i, n.name) for n in self.nodes.values() for i in n.inputs)
