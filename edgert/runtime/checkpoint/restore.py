"""Restores state and queues from the last checkpoint, independent of fusion.

With more or less fused, each part finds its place by name. A flow goes on in the copies in which it was stored: another
number of copies is another version of the flow.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Raw

from edgert.core.errors import MisfitError, PayloadError
from edgert.core.packing import unpack
from edgert.flow.graph import Flow
from edgert.flow.plan import copy_name, uncopied
from edgert.operators.base.logic import Emission, Now
from edgert.operators.fusion.chain import Fused
from edgert.operators.fusion.region import PartInput, Region
from edgert.operators.sources.source import Source
from edgert.runtime.checkpoint.packing import unpack_parts, unpack_queues
from edgert.runtime.instance.build import Built, Place
from edgert.runtime.instance.edges import Outgoing
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry

log = logging.getLogger(__name__)

WHOLE: Final = "*"
"""Stands in a state that says everything: what was stored before it does not count."""
State = Mapping[str, Raw]
"""State of one checkpoint, or of all together, by place; packed."""
MISFITS: Final = (KeyError, TypeError, ValueError, IndexError, AttributeError, PayloadError)


def states_of(blobs: Sequence[bytes]) -> list[State]:
    """The stored states of a flow that are valid, the oldest first. Raises `DamagedError` for a damaged blob."""
    states: list[State] = []
    for blob in blobs:
        state = unpack_parts(blob)
        if state.pop(WHOLE, None) is not None:
            states.clear()
        states.append(state)
    return states


def names_of(blobs: Sequence[bytes], queue: bytes) -> list[str]:
    """The places of which something is stored. Raises as `states_of`."""
    return [*(name for state in states_of(blobs) for name in state), *unpack_queues(queue, 0.0)]


def was_split(flow: Flow, names: Iterable[str], otherwise: bool) -> bool:
    """True if operators of `flow` ran in copies when `names`, of places or operator copies, were stored; `otherwise` if
    the names do not tell."""
    for name in names:
        common, copy = uncopied(name)
        if copy:
            return True
        if any(flow.nodes[operator].instances > 1 for operator in common.split("+") if operator in flow.nodes):
            return False
    return otherwise


def apply(state: State, built: Built, mine: Container[str] | None = None) -> None:
    """Gives a state, or what changed of it, to the places: of all instances, or of those in `mine`."""
    for name, part in state.items():
        try:
            for place, own in _state_of(name, unpack(bytes(part)), built):
                if mine is None or place.instance.name in mine:
                    place.logic.restore(own)
        except MISFITS as error:
            raise MisfitError(f"the stored state of {name} does not fit its operator: {error!r}") from error


def only(state: State, built: Built, mine: Container[str] | None) -> dict[str, Any]:
    """The part of a state that is of the instances in `mine` (None: of all), by the places at which it was stored."""
    found: dict[str, Any] = {}
    for name, part in state.items():
        try:
            own = [(place, one) for place, one in _state_of(name, unpack(bytes(part)), built)]
        except MISFITS as error:
            raise MisfitError(f"the stored state of {name} does not fit its operator: {error!r}") from error
        kept = [one for place, one in own if mine is None or place.instance.name in mine]
        if len(own) > 1 and kept:
            found[name] = {operator: document for one in kept for operator, document in one.items()}
        elif kept:
            found[name] = kept[0]
    return found


def models_of(blobs: Sequence[bytes], flow: Flow) -> dict[str, Any]:
    """The models that had come by message, by `predict` operator, in what is stored of a flow's state. Raises
    `DamagedError`, or `MisfitError` where they do not fit the flow."""
    predicting = {name for name, node in flow.nodes.items() if node.type == "predict"}
    found: dict[str, Any] = {}
    for state in states_of(blobs) if predicting else ():
        for name, part in state.items():
            if its := predicting.intersection(uncopied(name)[0].split("+")):
                try:
                    stored = unpack(bytes(part))
                    found.update((operator, stored[operator]) for operator in its if operator in stored)
                except MISFITS as error:
                    raise MisfitError(f"the stored state of {name} does not fit its operator: {error!r}") from error
    return found


def _state_of(name: str, state: Any, built: Built) -> Iterable[tuple[Place, Any]]:
    """The places that take over a state, each with its part. A chain's state is by operator, as its operators may be in
    different instances now."""
    place = _place(name, built)
    if not isinstance(place.logic, Fused) or not isinstance(state, dict):
        return [(place, state)]
    copy = uncopied(name)[1]
    homes = {operator: _place(copy_name(operator, copy), built) for operator in state}
    return [(homes[operator], {operator: document}) for operator, document in state.items()]


def _place(name: str, built: Built) -> Place:
    """The place of that name. If fusion was different when the state was stored, the present place of the first
    operator that is not a marker."""
    places = built.places
    if name in places:
        return places[name]
    common, copy = uncopied(name)
    for operator in common.split("+"):
        for place in places.values():
            if operator in place.planned.operators and place.planned.copy == copy:
                return place
    raise MisfitError(f"expected state of {', '.join(places)}, got that of {name} (of another version?)")


def is_for(name: str, built: Built, mine: Container[str] | None) -> bool:
    """True if what waited at the place `name` waits for one of the instances in `mine` now (None: all)."""
    return mine is None or _place(name, built).instance.name in mine


def check_waiting(name: str, entries: Sequence[Entry], built: Built) -> None:
    """Raises `MisfitError` where what waited at the place `name` has no place to wait at now."""
    place, at = _entrance(name, built)
    inside = at and isinstance(place.logic, Fused)
    if not inside and any(not 0 <= entry.source < len(place.entrances) for entry in entries):
        raise MisfitError(f"what waited at {name} came by an input that {place.planned.name} does not have")


def resumed(built: Built, queues: Mapping[str, Sequence[Entry]], now: Now, mine: Container[str] | None = None) -> None:
    """Once its state is there: lets the sources go on, and puts back what waited in front of all instances, or of those
    in `mine`."""
    for place in built.places.values():
        if isinstance(place.logic, Source):
            place.logic.resumed(now)
    # what waited nearest to the end of the flow first: what waits further back is newer, and would overtake the others,
    # or move the watermark past them
    order = {id(place): number for number, place in enumerate(built.places.values())}
    waited = [(*_entrance(name, built), entries) for name, entries in queues.items()]
    for place, at, entries in sorted(waited, key=lambda item: (-order[id(item[0])], -item[1])):
        if mine is None or place.instance.name in mine:
            for entry in entries:
                _enter(place, at, entry, now)


def _entrance(name: str, built: Built) -> tuple[Place, int]:
    """The place in front of which something waited at `name`, and before which of its operators."""
    place = _place(name, built)
    first = next(operator for operator in uncopied(name)[0].split("+") if operator in place.planned.operators)
    at = place.planned.operators.index(first)
    markers = all(built.registry[node.type].keys is not None for node in place.planned.nodes[:at])
    return place, 0 if markers else at


def _enter(place: Place, at: int, entry: Entry, now: Now) -> None:
    """Puts back what waited; if that was in the midst of what is a chain now, behind the rest of the chain."""
    instance, region = place.instance, place.instance.logic
    if not at or not isinstance(place.logic, Fused):
        _stand(instance, place.part, entry._replace(source=place.entrances[entry.source]))
        return
    rest = place.logic.rest(at)
    out: Outgoing[Instance] = []
    emissions: Sequence[Emission] = rest.process(entry.batch, 0, now)
    if isinstance(region, Region):
        inside: dict[int, PartInput] = {}
        leaving: list[Emission] = []
        region.pass_on(region.ordinary[place.part], emissions, inside, leaving)
        emissions = leaving
        for part in sorted(inside, reverse=True):
            for source, batch in inside[part]:
                _stand(instance, part, Entry(region.entrances(part)[source], batch, entry.put))
    for emission in emissions:
        instance.edges.give(emission, instance.counters.rows_out, out)
    instance.edges.settle(out)
    for target, batch in out:
        if target.instance.remote is None:
            target.instance.queue.append(Entry(target.source, batch, entry.put, producer=target.producer))
        else:
            target.instance.remote(target, batch)
    place.logic.drops.update(rest.drops)
    place.logic.lost += rest.lost
    place.guard.letters()
    if isinstance(region, Region):
        region.take_messages(place.logic)


def _stand(instance: Instance, part: int, entry: Entry) -> None:
    """Puts it into the queue again: in front of a part that is not the first it is nothing that could be shed."""
    if part:
        instance.queue.put_ahead(entry)
    else:
        instance.queue.append(entry)
