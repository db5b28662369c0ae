"""The switch on a virtual clock."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.simulation.described.ways import Way
from tests.lab.forwarding import BURST_BYTES, Switch, hardware_address

PORTS = ("a", "b", "c")
A, B, C = range(3)
EVERYBODY = b"\xff" * 6


def switch(seed: int = 0, **ways: Way) -> Switch:
    """`ways`: "ab" is the one from a to b; the others do nothing to frames."""
    pairs = [(a, b) for a in PORTS for b in PORTS if a != b]
    return Switch(PORTS, {(a, b): ways.get(a + b, Way()) for a, b in pairs}, random.Random(seed).random)


def frame(to: bytes, length: int = 100, mark: int = 0) -> bytes:
    return (to + mark.to_bytes(8, "big")).ljust(length, b"\0")


def to(port: int, length: int = 100, mark: int = 0) -> bytes:
    return frame(hardware_address(port), length, mark)


def arrivals(made: Switch) -> list[tuple[float, int, bytes]]:
    """(time, port, frame) of all that is under way."""
    found = []
    while (at := made.next_at) is not None:
        found += [(at, port, data) for port, data in made.due(at)]
    return found


def test_frame_leaves_at_the_port_of_its_address_after_the_delay_of_its_way() -> None:
    made = switch(ab=Way(delay_s=0.002), ba=Way(delay_s=0.003))
    made.receive(A, to(B), 10.0)
    made.receive(B, to(A), 10.0)
    assert made.due(10.0019) == []
    assert arrivals(made) == [(10.002, B, to(B)), (10.003, A, to(A))]


def test_frame_to_a_group_leaves_at_all_other_ports_by_the_way_of_each() -> None:
    made = switch(ab=Way(delay_s=0.002), ac=Way(cut=True))
    made.receive(A, frame(EVERYBODY), 0.0)
    assert arrivals(made) == [(0.002, B, frame(EVERYBODY))]
    assert made.figures()["a c"]["cut"] == 1


@pytest.mark.parametrize("data", [b"", b"short", frame(b"\x02\0\0\0\0\x99"), to(A)], ids=repr)
def test_what_goes_nowhere_is_counted(data: bytes) -> None:
    made = switch()
    made.receive(A, data, 0.0)
    assert (made.unknown, made.next_at) == (1, None)


def test_cut_stops_one_direction_only_until_it_is_healed() -> None:
    made = switch()
    made.set_way("a", "b", Way(cut=True))
    made.receive(A, to(B), 0.0)
    made.receive(B, to(A), 0.0)
    assert arrivals(made) == [(0.0, A, to(A))]
    made.set_way("a", "b", Way())
    made.receive(A, to(B), 1.0)
    assert arrivals(made) == [(1.0, B, to(B))]
    assert made.figures()["a b"] == {"forwarded": 1, "bytes": 100, "lost": 0, "overflowed": 0, "cut": 1}


def test_loss_takes_its_part_of_the_frames_and_the_same_ones_for_a_seed() -> None:
    def run(seed: int) -> Sequence[bytes]:
        made = switch(seed, ab=Way(loss=0.1))
        for number in range(10_000):
            made.receive(A, to(B, mark=number), 0.0)
        assert made.figures()["a b"]["lost"] + made.figures()["a b"]["forwarded"] == 10_000
        return [data for _, _, data in arrivals(made)]

    assert len(run(1)) == pytest.approx(9_000, abs=150)  # five standard deviations
    assert run(1) == run(1)
    assert run(1) != run(2)


def test_bandwidth_passes_a_burst_at_once_and_then_its_bytes_per_second() -> None:
    made = switch(ab=Way(bytes_per_s=100_000.0, queue_bytes=10**9))
    for number in range(103):
        made.receive(A, to(B, length=1000, mark=number), 0.0)
    times = [at for at, _, _ in arrivals(made)]
    assert times[: BURST_BYTES // 1000] == [0.0] * (BURST_BYTES // 1000)
    assert times[-1] == pytest.approx((103_000 - BURST_BYTES) / 100_000)
    made.receive(A, to(B, length=1000), 100.0)
    assert arrivals(made)[0][0] == 100.0  # it has rested


def test_full_queue_drops_what_comes_last_and_counts_it() -> None:
    made = switch(ab=Way(bytes_per_s=100_000.0, queue_bytes=5000))
    for number in range(20):
        made.receive(A, to(B, length=1000, mark=number), 0.0)
    kept = [int.from_bytes(data[6:14], "big") for _, _, data in arrivals(made)]
    assert kept == list(range(len(kept)))
    assert len(kept) == (5000 + BURST_BYTES) // 1000
    assert made.figures()["a b"]["overflowed"] == 20 - len(kept)


ways = st.builds(
    Way,
    delay_s=st.floats(0, 0.1),
    jitter_s=st.floats(0, 0.1),
    loss=st.sampled_from([0.0, 0.3]),
    bytes_per_s=st.sampled_from([0.0, 1e4, 1e6]),
    queue_bytes=st.sampled_from([2000, 10**6]),
)


@given(ways, st.lists(st.tuples(st.floats(0, 0.01), st.integers(60, 1514)), max_size=60), st.integers(0, 2**32))
def test_frames_of_a_way_stay_in_order_and_none_is_early_or_unaccounted(
    way: Way, sent: list[tuple[float, int]], seed: int
) -> None:
    made, now = switch(seed, ab=way), 0.0
    times = []
    for number, (later, length) in enumerate(sent):
        now += later
        times.append(now)
        made.receive(A, to(B, length, number), now)
    got = arrivals(made)
    marks = [int.from_bytes(data[6:14], "big") for _, _, data in got]
    assert marks == sorted(set(marks))
    assert all(at >= times[mark] + way.delay_s for (at, _, _), mark in zip(got, marks, strict=True))
    figures = made.figures()["a b"]
    assert figures["forwarded"] == len(got)
    assert figures["forwarded"] + figures["lost"] + figures["overflowed"] == len(sent)
