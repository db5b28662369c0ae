"""New versions of flows that read other filters, which bring the same messages."""

from __future__ import annotations

from typing import Final

from tests.protocol.state import State

FILTERS: Final = {"a": ("t/+/+", "t/#", "+/+/s"), "b": ("t/0/+", "t/0/#", "+/0/s")}


def change(world: State, name: str) -> None:
    """A new version of a flow reads another of its filters."""
    world.flows[name] = world.draw.choice([f for f in FILTERS[name] if f != world.flows[name]])
    world.deploy(name)
    note(world)


def note(world: State) -> None:
    """What the flows of the gateway read, which may be what an older version did."""
    if world.board:
        for source in world.board.ingest.subscriptions.sources:
            world.flows[source.flow] = source.filter
            world.ledger.changed(source.flow, source.filter)
