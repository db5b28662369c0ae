"""Prediction rings: windows, sums, time that goes by, and the packed form."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.interference.ring import (
    HORIZON,
    INNER,
    NOTHING,
    PACKED_BYTES,
    SECONDS,
    STARTS,
    WINDOWS,
    Ring,
    board_ring,
    instance_ring,
    later,
    pack,
    unpack_untrusted,
    windows_of,
)  # fmt: skip
from edgert.core.errors import ProtocolError

values = st.lists(st.floats(0, 1e9), min_size=WINDOWS, max_size=WINDOWS).map(tuple)
rings = st.builds(Ring, values, values)


def test_three_rings_of_thirty_windows_look_three_minutes_ahead() -> None:
    assert (WINDOWS, HORIZON) == (90, 180)
    assert (STARTS[0], STARTS[29], STARTS[30], STARTS[60], STARTS[89]) == (0, 29, 30, 90, 177)
    assert (SECONDS[29], SECONDS[30], SECONDS[60]) == (1, 2, 3)


def test_a_window_has_the_rate_of_its_middle_and_the_last_rate_goes_on() -> None:
    windows = windows_of([float(second) for second in range(100)])
    assert windows[:2] == (0, 1)
    assert windows[30] == 31
    assert windows[60] == 91
    assert windows[89] == 99
    assert windows_of([7.0, 9.0], 5.0)[4:6] == (7.0, 9.0)
    assert windows_of([]) == (0.0,) * WINDOWS


def test_an_instance_uses_arrivals_times_cost_and_its_board_the_sum_and_what_others_use() -> None:
    one, other = instance_ring([100.0], 0.002, 50), instance_ring([10.0], 0.01, 500)
    board = board_ring([one, other], external_cpu=0.5)
    assert board.cpu[0] == pytest.approx(0.2 + 0.1 + 0.5)
    assert board.cpu[INNER] == pytest.approx(0.3), "load of other programs is believed for 30 s"
    assert board.link[0] == 10_000


def test_a_ring_seen_later_begins_further_out() -> None:
    ring = Ring(tuple(map(float, range(WINDOWS))), NOTHING.link)
    seen = later(ring, 5)
    assert seen.cpu[:2] == (5, 6)
    assert seen.cpu[25] == 30
    assert seen.cpu[-1] == 89
    assert later(ring, 1_000).cpu == (89,) * WINDOWS
    assert later(ring, 0) == ring


@given(ring=rings)
def test_a_packed_ring_is_right_within_a_510th_of_its_peak(ring: Ring) -> None:
    packed = pack(ring)
    assert len(packed) == PACKED_BYTES == 189
    back = unpack_untrusted(packed)
    for was, now in ((ring.cpu, back.cpu), (ring.link, back.link)):
        assert all(abs(a - b) <= max(was) * (1 / 510 + 1e-6) + 1e-30 for a, b in zip(was, now, strict=True))


@given(
    data=st.binary(max_size=400) | st.binary(min_size=PACKED_BYTES, max_size=PACKED_BYTES).map(lambda b: b"\1" + b[1:])
)
def test_bytes_from_outside_are_a_ring_or_a_protocol_error(data: bytes) -> None:
    try:
        ring = unpack_untrusted(data)
    except ProtocolError:
        return
    assert all(0 <= value < float("inf") for value in ring.cpu + ring.link)


@pytest.mark.parametrize("peak", [-1.0, float("nan"), float("inf")])
def test_a_peak_that_is_none_is_refused(peak: float) -> None:
    with pytest.raises(ProtocolError, match="finite peaks"):
        unpack_untrusted(struct.pack("<Bff", 1, 1.0, peak) + bytes(2 * WINDOWS))


def test_a_truncated_ring_says_how_long_it_should_be() -> None:
    with pytest.raises(ProtocolError, match="expected 189 bytes of version 1, got 188 bytes"):
        unpack_untrusted(pack(NOTHING)[:-1])
