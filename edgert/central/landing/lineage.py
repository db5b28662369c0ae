"""Which contributions count: those of the newest lineage of their gateway. Pure.

An epoch's opening row says from which epoch it goes on (parent) and up to which sequence per stream that one is valid
(cut). The greatest epoch of a gateway counts whole, its parent up to the cut, and so on to the first epoch or to one
that was not opened. Everything else is void: a fallback computes and ships it again. Epochs are ordered by value, not
by when they landed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

Epoch = tuple[str, int]
"""(gateway, epoch)."""
Cut = Mapping[int, int] | None
"""Last valid sequence per stream (a stream that is not in it: none is valid); None: all are."""
_SUBSETS_OF: Final = 3
LAST: Final = 2**63 - 1
"""No sequence comes after it."""
_LAST_STREAM: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Opening:
    """An opening row of a landing table."""

    gateway: str
    epoch: int
    parent: int | None = None
    cut: Mapping[int, int] = field(default_factory=dict)


def counted(openings: Iterable[Opening]) -> dict[Epoch, Cut]:
    """For every epoch whose rows count: up to where. An epoch that is missing is void."""
    by_epoch = {(o.gateway, o.epoch): o for o in openings}
    newest: dict[str, int] = {}
    for gateway, epoch in by_epoch:
        newest[gateway] = max(epoch, newest.get(gateway, epoch))
    valid: dict[Epoch, Cut] = {}
    for gateway, epoch in newest.items():
        at: int | None = epoch
        cut: Cut = None
        while at is not None and (gateway, at) in by_epoch and (gateway, at) not in valid:
            valid[(gateway, at)] = cut
            opening = by_epoch[(gateway, at)]
            at, cut = opening.parent, opening.cut
    return valid


def bounded(cut: Mapping[int, int]) -> dict[int, int]:
    """The cut in numbers that a column holds. Others are left out or bounded: else the whole table would be refused,
    again and again."""
    return {s: max(-1, min(last, LAST)) for s, last in cut.items() if 0 <= s <= _LAST_STREAM}


def unsettled(openings: Iterable[Opening], new: Iterable[Epoch]) -> dict[Epoch, Mapping[int, int]]:
    """Epochs whose validity the openings of `new` epochs may have changed: rows of these epochs past the sequence
    given.

    Those rows of the new epochs themselves that count are not among them: they come after their opening, so they are
    new too. Those that do not count are: they may have counted for whoever read the table before, up to a moment before
    the newest of them was opened, and lost his place. Somebody may have looked when only some of `new` had landed, so
    each such moment is considered; where these are too many, everything older counts as unsettled.
    """
    by_gateway: dict[str, list[Opening]] = {}
    for opening in openings:
        by_gateway.setdefault(opening.gateway, []).append(opening)
    result: dict[Epoch, Mapping[int, int]] = {}
    added = set(new)
    for gateway in {g for g, _ in added}:
        known = by_gateway.get(gateway, [])
        fresh = [o for o in known if (gateway, o.epoch) in added]
        old = [o for o in known if (gateway, o.epoch) not in added]
        states = [counted(old + list(some)) for some in _subsets(fresh)] if len(fresh) <= _SUBSETS_OF else [{}]
        for opening in old:
            epoch = (gateway, opening.epoch)
            low = _lowest([state.get(epoch, {}) for state in states])
            if low is not None:
                result[epoch] = low
        valid = counted(known)
        for opening in fresh:
            cut = valid.get((gateway, opening.epoch), {})
            if cut is not None:
                result[(gateway, opening.epoch)] = cut
    return result


def _subsets(fresh: list[Opening]) -> Iterable[tuple[Opening, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(fresh, n) for n in range(len(fresh) + 1))


def _lowest(cuts: list[Cut]) -> Mapping[int, int] | None:
    """The least of several cuts, stream by stream; None if all of them are the same."""
    if all(c == cuts[0] for c in cuts) and len(cuts) > 1:
        return None
    bounded = [c for c in cuts if c is not None]
    streams = set(bounded[0]) if bounded else set()
    for c in bounded[1:]:
        streams &= set(c)
    return {s: min(c[s] for c in bounded) for s in streams}
