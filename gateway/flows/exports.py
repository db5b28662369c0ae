"""State, and rows that wait, of operators that leave: a part of a flow gives them to the boards of the next plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from edgert.flow.graph import Flow
from edgert.flow.plan import copy_name, uncopied
from edgert.flow.spec import Registry
from edgert.links.messages import NOTHING, Number
from edgert.runtime.checkpoint import departures, restore
from edgert.runtime.checkpoint.packing import pack_queues, pack_state, unpack_queues
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.queue import Entry
from edgert.store.database import Database
from edgert.store.outbox import link_outbox
from gateway.base.tasks import OnStore

MOST_PENDING: Final = 1 << 40
"""Bytes: all that waits for another gateway is read back."""


async def pending(
    database: Database, store: OnStore, flow: str, taken: Mapping[str, Sequence[int]], monotonic: float
) -> bytes:
    """Batches that left here and were not taken at the other end, by the operator copy to which they go, packed as
    queues are. `taken`: gateway → (epoch, sequence) of the last batch that it took from here."""
    found = dict[str, list[Entry]]()
    for (name, gateway), _ in (await store(partial(database.read, link_outbox.streams))).items():
        if name != flow:
            continue
        after = Number(*taken.get(gateway, NOTHING))
        for batch in await store(partial(database.read, link_outbox.pending, flow, gateway, after, MOST_PENDING)):
            for one in departures.unpack_untrusted(batch.body, monotonic):
                found.setdefault(one.operator, []).append(Entry(one.source, one.batch, producer=one.producer))
    return pack_queues(found)


def waiting_before(flow: Flow, registry: Registry, queue: bytes, operators: Collection[str]) -> bytes:
    """Returns those packed queues that stand before operator copies that leave."""
    waiting = unpack_queues(queue, 0.0)
    return pack_queues({name: q for name, q in waiting.items() if _waits_before(flow, registry, name) in operators})


def _waits_before(flow: Flow, registry: Registry, name: str) -> str:
    """The operator copy before which the queue of the stage `name` stands: the first one that is not a marker. The
    operators behind it may go to other gateways."""
    common, copy = uncopied(name)
    operators = [flow.nodes[operator] for operator in common.split("+")]
    return copy_name(departures.first_of(operators, registry), copy)


def states_of_operators(blobs: Sequence[bytes], operators: Collection[str]) -> list[bytes]:
    """The stored state of operator copies, oldest first, packed. A stage of several operators is in it as a whole."""
    states = [{n: part for n, part in state.items() if _concerns(n, operators)} for state in restore.states_of(blobs)]
    return [pack_state(state) for state in states if state]


def waiting_here(run: FlowRun, queue: bytes) -> bytes:
    """Returns those packed queues that stand before an instance of this board by the plan of `run`. Raises
    `MisfitError` where one has no stage."""
    waiting = {name: q for name, q in unpack_queues(queue, 0.0).items() if restore.is_for(name, run.built, run.mine)}
    for name, entries in waiting.items():
        restore.check_waiting(name, entries, run.built)
    return pack_queues(waiting)


def rows_in(queue: bytes) -> int:
    """Rows in packed queues."""
    return sum(len(entry.batch) for entries in unpack_queues(queue, 0.0).values() for entry in entries)


def _concerns(name: str, wanted: Collection[str]) -> bool:
    """True for a stage, by its name, with an operator copy of `wanted`: its state is by operator."""
    common, copy = uncopied(name)
    return any(copy_name(operator, copy) in wanted for operator in common.split("+"))
