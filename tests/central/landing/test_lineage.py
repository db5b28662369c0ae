"""Which contributions count."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from edgert.central.landing.lineage import Cut, Epoch, Opening, counted, unsettled


def counts(valid: dict[Epoch, Cut], epoch: Epoch, stream: int, sequence: int) -> bool:
    if epoch not in valid:
        return False
    cut = valid[epoch]
    return cut is None or sequence <= cut.get(stream, 0)


def test_first_epoch_counts_whole() -> None:
    assert counted([Opening("g", 1)]) == {("g", 1): None}


def test_fallback_cuts_its_parent_and_counts_itself() -> None:
    openings = [Opening("g", 1), Opening("g", 2, parent=1, cut={0: 7, 1: 3})]
    assert counted(openings) == {("g", 2): None, ("g", 1): {0: 7, 1: 3}}


def test_epochs_are_ordered_by_value_not_by_when_they_landed() -> None:
    older, newer = Opening("g", 5), Opening("g", 9, parent=5, cut={0: 1})
    assert counted([newer, older]) == counted([older, newer]) == {("g", 9): None, ("g", 5): {0: 1}}


def test_epoch_beside_the_newest_lineage_is_void() -> None:
    openings = [Opening("g", 1), Opening("g", 2, parent=1, cut={0: 4}), Opening("g", 3, parent=1, cut={0: 9})]
    assert counted(openings) == {("g", 3): None, ("g", 1): {0: 9}}


def test_epoch_that_was_not_opened_ends_the_lineage() -> None:
    assert counted([Opening("g", 1), Opening("g", 3, parent=2, cut={0: 4})]) == {("g", 3): None}


def test_gateways_have_lineages_of_their_own() -> None:
    assert counted([Opening("g", 1), Opening("h", 8)]) == {("g", 1): None, ("h", 8): None}


def test_opening_of_a_fallback_unsettles_what_its_cut_makes_void() -> None:
    openings = [Opening("g", 1), Opening("g", 2, parent=1, cut={0: 7})]
    assert unsettled(openings, [("g", 2)]) == {("g", 1): {0: 7}}


def test_opening_of_the_first_epoch_unsettles_nothing() -> None:
    assert unsettled([Opening("g", 1), Opening("h", 1)], [("g", 1)]) == {}


def brute_force(openings: list[Opening]) -> set[tuple[Epoch, int, int]]:
    """Every (epoch, stream, sequence) that counts, by following the lineage for each of them."""
    result = set()
    for gateway in {o.gateway for o in openings}:
        of = {o.epoch: o for o in openings if o.gateway == gateway}
        for epoch in of:
            for stream in range(3):
                for sequence in range(1, 6):
                    at: int | None = max(of)
                    limit = 10**9
                    while at is not None and at in of and at != epoch:
                        opening = of[at]
                        at, limit = opening.parent, dict(opening.cut).get(stream, 0)
                    if at == epoch and sequence <= limit:
                        result.add(((gateway, epoch), stream, sequence))
    return result


def some_openings(rng: random.Random) -> list[Opening]:
    openings = []
    for gateway in "gh":
        for epoch in rng.sample(range(1, 9), rng.randint(1, 6)):
            parent = rng.choice([None, *range(1, epoch)]) if epoch > 1 else None
            cut = {s: rng.randint(0, 5) for s in range(3) if rng.random() < 0.7}
            openings.append(Opening(gateway, epoch, parent, cut if parent else {}))
    rng.shuffle(openings)
    return openings


@given(st.integers(0, 2**32))
def test_counted_is_what_following_each_lineage_by_hand_gives(seed: int) -> None:
    openings = some_openings(random.Random(seed))
    valid = counted(openings)
    got = {
        ((o.gateway, o.epoch), stream, sequence)
        for o in openings
        for stream in range(3)
        for sequence in range(1, 6)
        if counts(valid, (o.gateway, o.epoch), stream, sequence)
    }
    assert got == brute_force(openings)


@given(st.integers(0, 2**32))
def test_every_row_whose_validity_changes_between_two_looks_is_unsettled(seed: int) -> None:
    """Openings land one after the other; somebody may have looked after each. What a batch that brings the last `k`
    of them leaves out must have counted, or not, at each of these looks."""
    rng = random.Random(seed)
    openings = some_openings(rng)
    k = rng.randint(1, len(openings))
    new = {(o.gateway, o.epoch) for o in openings[-k:]}
    lows = unsettled(openings, new)
    looks = [brute_force(openings[: len(openings) - k + i]) for i in range(k + 1)]
    for opening in openings[:-k]:
        epoch = (opening.gateway, opening.epoch)
        for stream in range(3):
            for sequence in range(1, 6):
                row = (epoch, stream, sequence)
                if len({row in look for look in looks}) > 1:
                    assert epoch in lows
                    assert sequence > lows[epoch].get(stream, 0)


@given(st.integers(0, 2**32))
def test_who_reads_all_anew_is_told_of_each_row_that_counted_once_and_does_not_any_more(seed: int) -> None:
    """Whoever had read the table before may have done so after any opening; what he made of it is still there."""
    rng = random.Random(seed)
    openings = some_openings(rng)
    lows = unsettled(openings, {(o.gateway, o.epoch) for o in openings})
    once = set().union(*(brute_force(openings[:n]) for n in range(len(openings))))
    for epoch, stream, sequence in once - brute_force(openings):
        assert epoch in lows
        assert sequence > lows[epoch].get(stream, 0)
