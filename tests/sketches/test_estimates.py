"""Sketches that estimate: within their documented error, mergeable, and back from a checkpoint as they were."""

from __future__ import annotations

import math
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.packing import pack, unpack
from edgert.sketches.hashing import hash_of
from edgert.sketches.hyperloglog import HyperLogLog, precision_for
from edgert.sketches.second_moment import SecondMoment, width_for

Sketch = HyperLogLog | SecondMoment
SomeSketch = TypeVar("SomeSketch", bound=Sketch)
MAKERS: dict[str, Callable[[], Sketch]] = {"distinct": lambda: HyperLogLog(4), "moment": lambda: SecondMoment(8)}
HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=40)


def hashed(value: object, seed: int = 0) -> int:
    found = hash_of(value, seed)
    assert found is not None
    return found


def filled(made: SomeSketch, hashes: Iterable[int]) -> SomeSketch:
    for h in hashes:
        made.add(h)
    return made


def inside(made: Sketch) -> object:
    return bytes(made.registers) if isinstance(made, HyperLogLog) else made.counters


@pytest.mark.parametrize("precision", [4, 8, 10, 12])
@pytest.mark.parametrize("true", [1, 10, 500, 3_000, 40_000])
def test_distinct_values_are_counted_within_the_error(precision: int, true: int) -> None:
    streams = 12
    errors = []
    for seed in range(streams):
        made = filled(HyperLogLog(precision), (hashed(n, seed) for n in range(true)))
        errors.append(made.estimate / true - 1)
    bound = 1.04 / math.sqrt(2**precision)
    assert math.sqrt(sum(e * e for e in errors) / streams) < 1.6 * bound
    assert abs(sum(errors) / streams) < 4 * bound / math.sqrt(streams) + 0.01, "biased"


@given(HASHES)
def test_the_sum_that_is_kept_is_that_of_the_registers(hashes: list[int]) -> None:
    made = HyperLogLog(4)
    filled(made, hashes)
    size, greatest = 16, 61
    expected = [0] * size
    for h in hashes:
        rest = f"{h & (2**60 - 1):060b}"
        expected[h >> 60] = max(expected[h >> 60], rest.find("1") + 1 if "1" in rest else greatest)
    assert list(made.registers) == expected
    empty, others = expected.count(0), sum(2.0**-rank for rank in expected if rank)
    share = empty / size
    sigma = share + sum(share ** (2**k) * 2 ** (k - 1) for k in range(1, 12)) if share < 1 else math.inf
    assert made.estimate == round(0.673 * size * size / (size * sigma + others))


@pytest.mark.parametrize("precision", [5, 8, 10])
def test_nowhere_is_the_error_greater_than_promised(precision: int) -> None:
    """Where the first paper goes over from linear counting to its raw estimate, both are worse by a third."""
    size, draw = 2**precision, random.Random(precision)
    streams = 6_000 // size + 150
    sketches = [HyperLogLog(precision) for _ in range(streams)]
    came = 0
    for true in (size // 4, size, 2 * size, size * 12 // 5, size * 13 // 5, 3 * size, 6 * size):
        for made in sketches:
            filled(made, (draw.getrandbits(64) for _ in range(true - came)))
        came = true
        errors = [made.estimate / true - 1 for made in sketches]
        rmse = math.sqrt(sum(e * e for e in errors) / streams)
        assert rmse < (1 + 2 / math.sqrt(2 * streams)) * 1.04 / math.sqrt(size), true


@pytest.mark.parametrize("width", [64, 256])
def test_the_second_moment_is_within_the_error(width: int) -> None:
    streams = 24
    stream = [n for n in range(200) for _ in range(1 + 400 // (n + 1))]
    true = sum(count**2 for count in Counter(stream).values())
    errors = []
    for seed in range(streams):
        made = filled(SecondMoment(width), (hashed(f"value-{n}", seed) for n in stream))
        errors.append(made.estimate / true - 1)
    assert sum(abs(e) > math.sqrt(8 / width) for e in errors) <= 0.104 * streams
    assert math.sqrt(sum(e * e for e in errors) / streams) < math.sqrt(2 / width)
    assert max(map(abs, errors)) > 0.1 * math.sqrt(2 / width), "an estimate that is never wrong is none"


def test_one_value_alone_is_exact() -> None:
    assert filled(SecondMoment(8), [hashed("x")] * 1_000).estimate == 1_000_000


@pytest.mark.parametrize("name", MAKERS)
@given(batches=st.lists(HASHES, max_size=4))
def test_changes_and_states_bring_it_back(name: str, batches: list[list[int]]) -> None:
    made, by_changes, by_state = (MAKERS[name]() for _ in range(3))
    for batch in batches:
        filled(made, batch)
        by_changes.apply(unpack(pack(made.changes())))
    by_state.apply(unpack(pack(made.state())))
    for again in (by_changes, by_state):
        assert inside(again) == inside(made)
        assert again.estimate == made.estimate
        assert (
            filled(again, [7, 2**63]).estimate
            == filled(MAKERS[name](), [h for batch in [*batches, [7, 2**63]] for h in batch]).estimate
        )


def test_of_few_changes_only_those_are_told() -> None:
    made = filled(HyperLogLog(10), [hashed(n) for n in range(5_000)])
    assert len(made.changes()) == 1024
    assert made.changes() == b""
    before = bytes(made.registers)
    n = 5_000
    while bytes(made.registers) == before:
        made.add(hashed(n))
        n += 1
    at, rank = struct.unpack("<HB", made.changes())
    assert made.registers[at] == rank > before[at]


@given(batches=st.lists(HASHES, max_size=3))
def test_changes_are_taken_as_lists_too_as_they_were_stored_before(batches: list[list[int]]) -> None:
    registers, counters = HyperLogLog(10), SecondMoment(64)
    again: tuple[HyperLogLog, SecondMoment] = HyperLogLog(10), SecondMoment(64)
    for batch in batches:
        before = bytes(registers.registers)
        filled(registers, batch), filled(counters, batch)
        again[0].apply(
            [part for at, rank in enumerate(registers.registers) if rank > before[at] for part in (at, rank)]
        )
        again[1].apply(unpack(pack(counters.counters.tolist())))
    assert (inside(again[0]), inside(again[1])) == (inside(registers), inside(counters))


@pytest.mark.parametrize("most", [0, 1, -127, 128, -32_767, 32_768, 2**31 - 1, -(2**31), 2**53])
def test_counters_are_told_in_the_narrowest_type_that_holds_them(most: int) -> None:
    made, again = SecondMoment(8), SecondMoment(8)
    made.apply([most, *range(39)])
    assert made.counters[0] == most
    again.apply(made.state())
    assert inside(again) == inside(made)
    reach = max(abs(most), 38)
    assert (len(made.state()) - 1) // 40 == next(size for size in (1, 2, 4, 8) if reach < 2 ** (8 * size - 1))


@pytest.mark.parametrize(
    ("made", "changes"),
    [
        (HyperLogLog(4), bytes(15)),
        (HyperLogLog(4), [16, 1]),
        (HyperLogLog(4), [1, 62]),
        (HyperLogLog(4), [1]),
        (SecondMoment(8), [0] * 39),
        (SecondMoment(8), [0] * 39 + [2**60]),
        (SecondMoment(8), [0] * 39 + ["x"]),
        (HyperLogLog(4), b"\x10\x00\x01"),
        (HyperLogLog(4), b"\x01\x00\xff"),
        (HyperLogLog(4), b"\x01\x00\x01\x00\x01\x01"),
        (SecondMoment(8), b""),
        (SecondMoment(8), b"d" + bytes(320)),
        (SecondMoment(8), b"b" + bytes(39)),
        (SecondMoment(8), b"h" + bytes(79)),
        (SecondMoment(8), b"q" + bytes(312) + b"\xff" * 7 + b"\x7f"),
    ],
)
def test_the_state_of_something_else_is_refused(made: Sketch, changes: bytes | list[int]) -> None:
    with pytest.raises(ValueError):
        made.apply(changes)


def test_sizes_follow_from_the_error_asked_for() -> None:
    assert [precision_for(e) for e in (1.0, 0.26, 0.0325, 0.0324, 0.01, 1e-9)] == [4, 4, 10, 11, 14, 16]
    assert [width_for(e) for e in (2.0, 0.5, 0.25, 0.18, 0.125, 1e-9)] == [8, 8, 32, 64, 128, 2048]
    for size in (3, 17):
        with pytest.raises(ValueError, match="precision"):
            HyperLogLog(size)
    for size in (4, 24, 4096):
        with pytest.raises(ValueError, match="power of two"):
            SecondMoment(size)


def test_the_five_estimates_of_a_moment_are_different_ones() -> None:
    made = SecondMoment(64)
    filled(made, [hashed(n) for n in range(100)])
    assert len({tuple(made.counters[at : at + 64]) for at in range(0, 320, 64)}) == 5


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 40).map(hash_of), max_size=60))
def test_what_an_estimate_would_be_is_what_it_becomes(hashes: list[int]) -> None:
    added, taken, counted, raised = SecondMoment(8), SecondMoment(8), HyperLogLog(4), HyperLogLog(4)
    for hashed in hashes:
        before = taken.state(), taken.estimate, raised.state(), raised.estimate
        moment, moved = taken.after(hashed)
        distinct, news = raised.after(hashed)
        assert before == (taken.state(), taken.estimate, raised.state(), raised.estimate), "it was only asked"
        taken.take(moved)
        if news is not None:
            raised.take(news)
        added.add(hashed)
        assert counted.add(hashed) == (news is not None)
        assert (moment, distinct) == (taken.estimate, raised.estimate) == (added.estimate, counted.estimate)
        assert (taken.state(), raised.state()) == (added.state(), counted.state())
    assert raised.changes() == counted.changes()
