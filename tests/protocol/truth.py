"""What must hold at the end of a walk."""

from __future__ import annotations

from collections import Counter

from edgert.mqtt.topics import covers
from tests.protocol.state import State


def check(world: State) -> None:
    """Against the truth."""
    assert not world.central.lost(), "tables never lose anything here"
    for name in world.flows:
        world.fleet.check(name)
        found: Counter[str] = Counter()
        for (_, key), n in world.fleet.counted(name).items():
            found[key] += n
        _check(world, name, found)
    if world.dropping:
        world.dropping.check(world.strict)


def _check(world: State, name: str, counted: Counter[str]) -> None:
    ledger, key = world.ledger, world.keys.__getitem__
    of = {u for u, its in world.topics.items() if covers(world.flows[name], its)}
    expected = Counter(map(key, of))
    again = Counter(map(key, ledger.again[name].elements()))
    doubled = counted - expected - again
    repeated = world.repeated[name] if world.delivery[name] == "at-least-once" else 0
    assert doubled.total() <= repeated, f"flow {name} counted twice: {doubled}, {repeated} foreseen"
    excused = ledger.excused(name, world.unique) & of
    assert not (world.strict and (excused or again)), f"flow {name}: nothing of this walk excuses {excused} or {again}"
    if shed := world.shed[name]:
        assert name == "b", "the other keeps all"
        said = world.central.shed()
        assert world.went_back or said == shed, f"{said} rows are said to be shed, {shed} were"
    lost = expected - counted - Counter(map(key, excused)) - ledger.shed[name]
    assert not lost, f"flow {name} lost {lost}; {excused} are excused"
