"""Restores state and queues from the last checkpoint, independent of fusion.

With more or less fused, each stage is found by name. A flow goes on in the copies in which it was stored: another
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
from edgert.operators.fusion.chain import Chain
from edgert.operators.fusion.region import Region, StageInput
from edgert.operators.sources.source import Source
from edgert.runtime.checkpoint.packing import unpack_parts, unpack_queues
from edgert.runtime.instance.build import Built, Stage
from edgert.runtime.instance.edges import TurnOutput
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry

log = logging.getLogger(__name__)

WHOLE: Final = "*"
"""Stands in a state that says everything: what was stored before it does not count."""
StoredState = Mapping[str, Raw]
"""State of one checkpoint, or of all together, by stage; packed."""
MISFITS: Final = (KeyError, TypeError, ValueError, IndexError, AttributeError, PayloadError)


def states_of(blobs: Sequence[bytes]) -> list[StoredState]:
    """The stored states of a flow that are valid, the oldest first. Raises `DamagedError` for a damaged blob."""
    states: list[StoredState] = []
    for blob in blobs:
        state = unpack_parts(blob)
        if state.pop(WHOLE, None) is not None:
            states.clear()
        states.append(state)
    return states


def names_of(blobs: Sequence[bytes], queue: bytes) -> list[str]:
    """The stages of which something is stored. Raises as `states_of`."""
    return [*(name for state in states_of(blobs) for name in state), *unpack_queues(queue, 0.0)]


def was_split(flow: Flow, names: Iterable[str], otherwise: bool) -> bool:
    """True if operators of `flow` ran in copies when `names`, of stages or operator copies, were stored; `otherwise` if
    the names do not tell."""
    for name in names:
        common, copy = uncopied(name)
        if copy:
            return True
        if any(flow.nodes[operator].instances > 1 for operator in common.split("+") if operator in flow.nodes):
            return False
    return otherwise


def apply(state: StoredState, built: Built, mine: Container[str] | None = None) -> None:
    """Gives a state, or what changed of it, to the stages: of all instances, or of those in `mine`."""
    for name, packed in state.items():
        try:
            for stage, own in _state_of(name, unpack(bytes(packed)), built):
                if mine is None or stage.instance.name in mine:
                    stage.logic.restore(own)
        except MISFITS as error:
            raise MisfitError(f"the stored state of {name} does not fit its operator: {error!r}") from error


def only(state: StoredState, built: Built, mine: Container[str] | None) -> dict[str, Any]:
    """The part of a state that is of the instances in `mine` (None: of all), by the stages for which it was stored."""
    found: dict[str, Any] = {}
    for name, packed in state.items():
        try:
            own = [(stage, one) for stage, one in _state_of(name, unpack(bytes(packed)), built)]
        except MISFITS as error:
            raise MisfitError(f"the stored state of {name} does not fit its operator: {error!r}") from error
        kept = [one for stage, one in own if mine is None or stage.instance.name in mine]
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
        for name, packed in state.items():
            if its := predicting.intersection(uncopied(name)[0].split("+")):
                try:
                    stored = unpack(bytes(packed))
                    found.update((operator, stored[operator]) for operator in its if operator in stored)
                except MISFITS as error:
                    raise MisfitError(f"the stored state of {name} does not fit its operator: {error!r}") from error
    return found


def _state_of(name: str, state: Any, built: Built) -> Iterable[tuple[Stage, Any]]:
    """The stages that take over a state, each with its part. A chain's state is by operator, as its operators may be in
    different instances now."""
    stage = _stage(name, built)
    if not isinstance(stage.logic, Chain) or not isinstance(state, dict):
        return [(stage, state)]
    copy = uncopied(name)[1]
    homes = {operator: _stage(copy_name(operator, copy), built) for operator in state}
    return [(homes[operator], {operator: document}) for operator, document in state.items()]


def _stage(name: str, built: Built) -> Stage:
    """The stage of that name. If fusion was different when the state was stored, the present stage of the first
    operator that is not a marker."""
    stages = built.stages
    if name in stages:
        return stages[name]
    common, copy = uncopied(name)
    for operator in common.split("+"):
        for stage in stages.values():
            if operator in stage.planned.operators and stage.planned.copy == copy:
                return stage
    raise MisfitError(f"expected state of {', '.join(stages)}, got that of {name} (of another version?)")


def is_for(name: str, built: Built, mine: Container[str] | None) -> bool:
    """True if what waited at the stage `name` waits for one of the instances in `mine` now (None: all)."""
    return mine is None or _stage(name, built).instance.name in mine


def check_waiting(name: str, entries: Sequence[Entry], built: Built) -> None:
    """Raises `MisfitError` where what waited at the stage `name` has nowhere to wait now."""
    stage, at = _entrance(name, built)
    inside = at and isinstance(stage.logic, Chain)
    if not inside and any(not 0 <= entry.source < len(stage.entrances) for entry in entries):
        raise MisfitError(f"what waited at {name} came by an input that {stage.planned.name} does not have")


def resumed(built: Built, queues: Mapping[str, Sequence[Entry]], now: Now, mine: Container[str] | None = None) -> None:
    """Once its state is there: lets the sources go on, and puts back what waited in front of all instances, or of those
    in `mine`."""
    for stage in built.stages.values():
        if isinstance(stage.logic, Source):
            stage.logic.resumed(now)
    # what waited nearest to the end of the flow first: what waits further back is newer, and would overtake the others,
    # or move the watermark past them
    order = {id(stage): number for number, stage in enumerate(built.stages.values())}
    waited = [(*_entrance(name, built), entries) for name, entries in queues.items()]
    for stage, at, entries in sorted(waited, key=lambda item: (-order[id(item[0])], -item[1])):
        if mine is None or stage.instance.name in mine:
            for entry in entries:
                _enter(stage, at, entry, now)


def _entrance(name: str, built: Built) -> tuple[Stage, int]:
    """The stage in front of which something waited at `name`, and before which of its operators."""
    stage = _stage(name, built)
    first = next(operator for operator in uncopied(name)[0].split("+") if operator in stage.planned.operators)
    at = stage.planned.operators.index(first)
    markers = all(built.registry[node.type].keys is not None for node in stage.planned.nodes[:at])
    return stage, 0 if markers else at


def _enter(stage: Stage, at: int, entry: Entry, now: Now) -> None:
    """Puts back what waited; if that was in the midst of what is a chain now, behind the rest of the chain."""
    instance, region = stage.instance, stage.instance.logic
    if not at or not isinstance(stage.logic, Chain):
        _stand(instance, stage.number, entry._replace(source=stage.entrances[entry.source]))
        return
    tail = stage.logic.tail(at)
    out: TurnOutput[Instance] = []
    emissions: Sequence[Emission] = tail.process(entry.batch, 0, now)
    if isinstance(region, Region):
        inside: dict[int, StageInput] = {}
        leaving: list[Emission] = []
        region.pass_on(region.ordinary[stage.number], emissions, inside, leaving)
        emissions = leaving
        for number in sorted(inside, reverse=True):
            for source, batch in inside[number]:
                _stand(instance, number, Entry(region.entrances(number)[source], batch, entry.put))
    for emission in emissions:
        instance.edges.give(emission, instance.counters.rows_out, out)
    instance.edges.settle(out)
    for target, batch in out:
        if target.instance.remote is None:
            target.instance.queue.append(Entry(target.source, batch, entry.put, producer=target.producer))
        else:
            target.instance.remote(target, batch)
    stage.logic.drops.update(tail.drops)
    stage.logic.lost += tail.lost
    stage.boundary.letters()
    if isinstance(region, Region):
        region.take_messages(stage.logic)


def _stand(instance: Instance, number: int, entry: Entry) -> None:
    """Puts it into the queue again: in front of a stage that is not the first it is nothing that could be shed."""
    if number:
        instance.queue.put_protected(entry)
    else:
        instance.queue.append(entry)
