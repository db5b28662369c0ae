"""Batches of a flow on their way to its instances on other gateways.

They leave with the checkpoint that contains them (design, Delivery): until then they wait here, and a checkpoint takes
them in the pause in which it takes state and queues. A batch is addressed by the operator copy with which the instance
there begins, since gateways may fuse what follows it in different ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from edgert.core.batch import Batch
from edgert.core.errors import DamagedError, PayloadError, show
from edgert.flow.plan import PhysicalInstance, copy_name
from edgert.links.frames import pack_rows, unpack_rows
from edgert.runtime.instance.edges import Target
from edgert.runtime.instance.instance import Instance
from edgert.runtime.state import pack_state, unpack_state


class Departure(NamedTuple):
    """One batch for an instance on another gateway."""

    gateway: str
    operator: str
    """The operator copy with which the instance begins."""
    source: int
    """Number of the instance's input."""
    producer: int
    """Which of the copies that feed that input gave it."""
    batch: Batch


class LinkBatch(NamedTuple):
    """What one checkpoint sends to one gateway, packed: it gets one number."""

    gateway: str
    rows: int
    payload: bytes


def departure(planned: PhysicalInstance, target: Target[Instance], batch: Batch) -> Departure:
    """`planned`: the instance that is to take the batch."""
    assert planned.location is not None
    return Departure(planned.location.gateway, entrance_name(planned), target.source, target.producer, batch)


def entrance_name(planned: PhysicalInstance) -> str:
    """The operator copy with which the instance begins."""
    return copy_name(planned.operators[0], planned.copy)


def pack(departures: Sequence[Departure]) -> list[LinkBatch]:
    """One for each gateway, batches in their order. A watermark without rows that a later one follows is left out."""
    by_gateway: dict[str, list[Departure]] = {}
    for one in departures:
        waiting = by_gateway.setdefault(one.gateway, [])
        if waiting and not waiting[-1].batch.rows and _edge(waiting[-1]) == _edge(one):
            waiting.pop()
        waiting.append(one)
    return [
        LinkBatch(gateway, sum(len(one.batch) for one in found), pack_state({"batches": [_plain(o) for o in found]}))
        for gateway, found in by_gateway.items()
    ]


def _edge(one: Departure) -> tuple[str, int, int]:
    return one.operator, one.source, one.producer


def _plain(one: Departure) -> list[Any]:
    batch = one.batch
    return [one.operator, one.source, one.producer, batch.size, batch.watermark, pack_rows(batch.rows)]


def unpack_untrusted(payload: bytes, arrival: float) -> list[Departure]:
    """The batches of a `LinkBatch` (without the gateway), as they arrive at `arrival` (monotonic seconds). Raises
    `PayloadError` for anything else."""
    try:
        state: Mapping[str, Any] = unpack_state(payload)
        return [
            Departure("", _text(operator), int(source), int(producer),
                      Batch(unpack_rows(runs), arrival, float(watermark), int(size)))
            for operator, source, producer, size, watermark, runs in state["batches"]
        ]  # fmt: skip
    except (DamagedError, ValueError, TypeError, KeyError, IndexError) as error:
        raise PayloadError(f"expected batches of another gateway, got {show(payload)}: {error}") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected the name of an operator, got {show(value)}")
    return value
