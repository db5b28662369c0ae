"""The physical graph of a flow as data: instances, the edges between them, and where each of them runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from edgert.flow.graph import Flow, Node
from edgert.flow.spec import Keys


class Division(NamedTuple):
    """The rule by which a row goes to one of the consumer's copies."""

    kind: Literal["forward", "shuffle", "key", "gather"]
    keys: Keys = ()
    """For `key`: the (field, type) pairs that decide."""

    def __str__(self) -> str:
        fields = ", ".join(name for name, _ in self.keys)
        return f"{self.kind} ({fields})" if fields else self.kind


FORWARD: Final = Division("forward")
DAEMON: Final = -1
"""The slot number of the gateway daemon itself."""


class Location(NamedTuple):
    """The place where an instance runs."""

    gateway: str
    slot: int = DAEMON
    """Number of the slot on that gateway; `DAEMON` where it has none, or another gateway decides."""

    def __str__(self) -> str:
        return f"{self.gateway}/{'daemon' if self.slot == DAEMON else self.slot}"


Assignment = Mapping[str, Location]
"""Operator → location; of several copies each by its own name (`minute#2`)."""


OperatorKind = Literal["source", "stateless", "stateful", "sink"]


class Output(NamedTuple):
    """An edge: the receiving instance, the port at which this instance emits the batches, and the input of the
    other."""

    instance: str
    port: int
    input: int
    division: Division = FORWARD
    """How rows are divided among the copies of that instance; there is one output for each of them."""
    producer: int = 0
    """The number of this copy among those that feed that input, from 0; 0 for `forward`."""


@dataclass(frozen=True, slots=True)
class PhysicalInstance:
    """One instance: an operator, or several that were fused."""

    name: str
    """The operators' names joined by +; of copies with # and the number of the copy."""
    kind: OperatorKind
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    """The instances that feed it, all copies of one as one (without #)."""
    outputs: tuple[Output, ...]
    keys: Keys = ()
    """(field, type) of the key, for stateful instances."""
    live: frozenset[str] | None = None
    """Fields of its output rows at which anything behind it looks (None: all)."""
    stages: tuple[PhysicalInstance, ...] = ()
    """For a region: the fused instances, as planned without fusion, each after all that feed it."""
    exits: tuple[tuple[int, int], ...] = ()
    """For a region, by its own port: (stage, port of the stage) by which rows leave."""
    feeders: tuple[int, ...] = ()
    """Number of instances that feed each input, by input; the smallest of their watermarks counts."""
    copies: int = 1
    """Number of copies."""
    copy: int = 0
    """Number of this copy, from 1; 0 if it is the only one."""
    location: Location | None = None
    """The location given by the assignment; None: any."""

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of the operators in it, in order."""
        return tuple(n.name for n in self.nodes)

    @property
    def slot(self) -> int:
        """The slot that its operators ask for; -1: none."""
        return max(node.slot for node in self.nodes)  # markers in it cannot ask

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Parameters of the first operator (of the only one, except where several are fused)."""
        return self.nodes[0].parameters


@dataclass(frozen=True, slots=True)
class Plan:
    """A flow's instances, each after all that feed it."""

    flow: Flow
    instances: Mapping[str, PhysicalInstance]
    instance_of: Mapping[str, str]
    """The instance, or the stage of one, in which each operator runs (of copies the name that they have in common). A
    marker that vanished counts to the one that feeds it."""
    number: int = 0
    """Counts the plans of one version of a flow: each change of its assignment makes the next."""

    def sets(self) -> tuple[tuple[PhysicalInstance, ...], ...]:
        """The copies of each instance together, in the plan's order."""
        sets: dict[tuple[str, ...], list[PhysicalInstance]] = {}
        for instance in self.instances.values():
            sets.setdefault(instance.operators, []).append(instance)
        return tuple(map(tuple, sets.values()))

    def stages(self) -> Iterator[PhysicalInstance]:
        """Instances, or their stages: what has a name, state and counters of its own."""
        for instance in self.instances.values():
            yield from instance.stages or (instance,)

    def edges(self) -> Iterator[tuple[str, str]]:
        """From stage to stage, by name."""
        first = {i.name: (i.stages or (i,))[0].name for i in self.instances.values()}
        for stage in self.stages():
            for output in stage.outputs:
                yield stage.name, first.get(output.instance, output.instance)

    def assignment(self) -> dict[str, Location]:
        """The location of every operator copy that has one."""
        return {
            copy_name(operator, instance.copy): instance.location
            for instance in self.instances.values()
            if instance.location is not None
            for operator in instance.operators
        }

    def neighbours(self, gateway: str) -> tuple[frozenset[str], frozenset[str]]:
        """(gateways from which batches come to this one, gateways to which batches go)."""
        located = {name: one.location.gateway for name, one in self.instances.items() if one.location}
        edges = [(name, output.instance) for name, one in self.instances.items() for output in one.outputs]
        pairs = {(located.get(giver, gateway), located.get(taker, gateway)) for giver, taker in edges}
        pairs = {(giver, taker) for giver, taker in pairs if giver != taker}
        origins = frozenset(giver for giver, taker in pairs if taker == gateway)
        return origins, frozenset(taker for giver, taker in pairs if giver == gateway)


def copy_name(name: str, number: int) -> str:
    """The name of copy `number` (from 1; 0: there is one only)."""
    return f"{name}#{number}" if number else name


def operator_copies(node: Node, fission: bool = True) -> list[str]:
    """The names of an operator's copies."""
    if not fission or node.instances == 1:
        return [node.name]
    return [copy_name(node.name, number) for number in range(1, node.instances + 1)]


def uncopied(name: str) -> tuple[str, int]:
    """The name that all copies have in common, and the number of this one."""
    common, _, number = name.rpartition("#")
    if not common or not (number.isascii() and number.isdigit()):
        return name, 0
    return common, int(number)
