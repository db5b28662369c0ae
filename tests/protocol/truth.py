"""What must hold at the end of a walk."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from edgert.mqtt.topics import covers

if TYPE_CHECKING:
    from tests.protocol.world import World


def check(world: World) -> None:
    """Against the truth."""
    assert not world.central.lost(), "tables never lose anything here"
    for name in world.flows:
        world.fleet.check(name)
        found: Counter[str] = Counter()
        for (_, key), n in world.fleet.counted(name).items():
            found[key] += n
        _check(world, name, found)


def _check(world: World, name: str, counted: Counter[str]) -> None:
    topic = world.flows[name]
    of = {u for u, its in world.topics.items() if covers(topic, its)}
    expected = Counter(world.keys[u] for u in of)
    spared = Counter(world.keys[u] for u in of & (world.broker.lost | world.gap[name]))
    again = Counter(world.keys[u] for u in world.broker.again.elements() if u in of)
    doubled = counted - expected - again
    repeated = world.repeated[name] if world.delivery[name] == "at-least-once" else 0
    foreseen = doubled.total() <= repeated if world.unique else not doubled or repeated
    assert foreseen or world.broker.again.keys() >= of, f"flow {name} counted twice: {doubled}, {repeated} foreseen"
    lost = expected - counted - spared
    if shed := world.shed[name]:
        assert name == "b", "the other keeps all"
        said = world.central.shed()
        assert world.went_back or said == shed, f"{said} rows are said to be shed, {shed} were"
        return  # a row may have counted several messages
    if world.unique:
        assert not lost, f"flow {name} lost {lost}"
    assert lost.total() <= world.ambiguous, f"flow {name} lost {lost}, {world.ambiguous} ambiguous"
