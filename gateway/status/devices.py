"""Devices of a flow and of all flows, for people: how many were heard lately, and which are silent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from edgert.mqtt.topics import covers
from edgert.operators.sources.silent_devices import NAMED

DeviceCounts = Mapping[str, Any]
"""`lately`, `silent` and `named`, see `SilentDevices.plain`."""


def together(counts: Iterable[DeviceCounts]) -> dict[str, Any] | None:
    """The sum of sources that hear different devices; None where no source counts its devices."""
    found = list(counts)
    if not found:
        return None
    named = sorted((name for one in found for name in one["named"]), key=lambda one: one[1])
    return {
        "lately": sum(one["lately"] for one in found),
        "silent": sum(one["silent"] for one in found),
        "named": named[:NAMED],
    }


def of_all(by_filter: Iterable[tuple[str, DeviceCounts]]) -> dict[str, Any] | None:
    """The devices of all sources, each counted once: sources with one filter hear the same devices, and a filter that
    covers another one hears those of the other, too."""
    most: dict[str, DeviceCounts] = {}
    pairs = sorted(by_filter, key=lambda pair: pair[0])
    widest = _widest(tuple(dict.fromkeys(filter_ for filter_, _ in pairs)))
    for filter_, counts in pairs:
        known = most.get(widest[filter_])
        if known is None or counts["lately"] + counts["silent"] > known["lately"] + known["silent"]:
            most[widest[filter_]] = counts
    return together(most.values())


@lru_cache(maxsize=1)
def _widest(filters: tuple[str, ...]) -> dict[str, str]:
    """Filter → the widest of them all that covers it. Kept, since filters change with the flows only."""
    widest: dict[str, str] = {}
    for one in filters:
        covering = [other for other in filters if covers(other, one) and not (covers(one, other) and other > one)]
        widest[one] = min(covering, key=lambda other: (sum(covers(c, other) for c in covering), other))
    return widest
