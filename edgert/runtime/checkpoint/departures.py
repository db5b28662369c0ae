"""Batches of a flow on their way to its instances on other gateways.

They leave with the checkpoint that contains them (docs/internals/delivery.md): until then they wait, and it takes
them in the pause in which it takes state and queues. A batch is addressed by the operator copy with which the instance
there begins, markers aside, since gateways may fuse what follows it, and markers, in different ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from edgert.core.batch import Batch, Row
from edgert.core.compression import expanded_untrusted
from edgert.core.errors import PayloadError, show
from edgert.core.packing import unpack_untrusted as plain_untrusted
from edgert.core.plain import is_integer, is_texts
from edgert.core.rows import pack_rows
from edgert.flow.graph import Node
from edgert.flow.plan import PhysicalInstance, copy_name
from edgert.flow.spec import Registry
from edgert.links.messages import MAX_BODY
from edgert.runtime.checkpoint.packing import pack_state
from edgert.runtime.instance.edges import Target
from edgert.runtime.instance.instance import Instance

MOST_EXPANDED_BYTES: Final = 8 * MAX_BODY
"""Most bytes of the expanded content of one link batch."""
MOST_ITEMS: Final = 10_000_000
LEAST_LIST_BYTES: Final = 8
"""A list of an honest batch takes more on average: a row has a time of 9 bytes, an empty batch a watermark."""
MOST_NUMBER: Final = 2**31
"""Greatest number of an input, and of a copy of an operator."""


class Departure(NamedTuple):
    """One batch for an instance on another gateway."""

    gateway: str
    operator: str
    """The operator copy with which the instance begins."""
    source: int
    """Number of the instance's input."""
    producer: int
    """The number of the copy that gave the batch, among those that feed that input."""
    batch: Batch


class LinkBatch(NamedTuple):
    """The batches that one checkpoint sends to one gateway, packed; they share one number."""

    gateway: str
    rows: int
    payload: bytes


def departure(planned: PhysicalInstance, registry: Registry, target: Target[Instance], batch: Batch) -> Departure:
    """`planned`: the instance that is to take the batch."""
    assert planned.location is not None
    entrance = copy_name(first_of(planned.nodes, registry), planned.copy)
    return Departure(planned.location.gateway, entrance, target.source, target.producer, batch)


def first_of(nodes: Sequence[Node], registry: Registry) -> str:
    """The first operator of an instance that is not a marker: a gateway without fusion has no markers."""
    return next((node.name for node in nodes if registry[node.type].keys is None), nodes[0].name)


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
    content = expanded_untrusted(payload, MOST_EXPANDED_BYTES)
    lists = len(content) // LEAST_LIST_BYTES + 100
    state = plain_untrusted(content, MOST_EXPANDED_BYTES, MOST_ITEMS, lists)
    batches = state.get("batches") if isinstance(state, dict) else None
    if not isinstance(batches, list):
        raise PayloadError(f"expected batches of another gateway, got {show(state)}")
    return [_departure_untrusted(plain, arrival) for plain in batches]


def _departure_untrusted(plain: Any, arrival: float) -> Departure:
    if not isinstance(plain, list) or len(plain) != 6:
        raise PayloadError(f"expected operator, input, copy, size, watermark and rows of a batch, got {show(plain)}")
    operator, source, producer, size, watermark, runs = plain
    if not isinstance(operator, str):
        raise PayloadError(f"expected the name of an operator, got {show(operator)}")
    for number, most in ((source, MOST_NUMBER), (producer, MOST_NUMBER), (size, MOST_EXPANDED_BYTES * 64)):
        if not is_integer(number) or not 0 <= number <= most:
            raise PayloadError(f"expected an integer from 0 to {most} with a batch for {operator}, got {show(number)}")
    if not isinstance(watermark, float) or watermark != watermark:
        raise PayloadError(f"expected a watermark in seconds with a batch for {operator}, got {show(watermark)}")
    return Departure("", operator, source, producer, Batch(_rows_untrusted(runs), arrival, watermark, size))


def _rows_untrusted(runs: Any) -> list[Row]:
    """See `edgert.core.rows.pack_rows`."""
    rows: list[Row] = []
    for run in runs if isinstance(runs, list) else [runs]:
        if not isinstance(run, list) or len(run) != 2 or not all(isinstance(part, list) for part in run):
            raise PayloadError(f"expected names and rows, got {show(run)}")
        names, found = run
        if not {"time", "source"}.issubset(name for name in names if isinstance(name, str)) or not is_texts(names):
            raise PayloadError(f"expected names of fields, time and source among them, got {show(names)}")
        at, width = names.index("time"), len(names)
        for values in found:
            if not isinstance(values, list) or len(values) != width or not isinstance(values[at], float | int):
                raise PayloadError(f"expected {width} values with a time for {show(names)}, got {show(values)}")
            rows.append(dict(zip(names, values, strict=True)))
    return rows
