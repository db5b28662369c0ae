"""MessagePack: round trips, and nothing from outside can do harm."""

from __future__ import annotations

import contextlib
import math
import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.errors import PayloadError
from edgert.core.packing import pack, unpack, unpack_untrusted

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text() | st.integers(0, 2**31), inner, max_size=5),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_packed_comes_back(value: Any) -> None:
    assert unpack(pack(value)) == value
    assert unpack_untrusted(pack(value)) == value


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_payload_error(payload: bytes) -> None:
    for read in (unpack, unpack_untrusted):
        with contextlib.suppress(PayloadError):
            read(payload)


@given(VALUES, st.data())
def test_a_cut_payload_is_refused(value: Any, data: st.DataObject) -> None:
    payload = pack(value)
    with pytest.raises(PayloadError):
        unpack_untrusted(payload[: data.draw(st.integers(0, len(payload) - 1))])


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xdd\xff\xff\xff\xff",  # a list that claims 2**32 - 1 elements
        b"\xdf\xff\xff\xff\xff",  # a map that does
        b"\xc6\xff\xff\xff\xff",  # bytes that do
        b"\x91" * 100_000 + b"\xc0",  # depth
        b"\x81\x90\xc0",  # a list as key
        b"\xa1\xff",  # text that is not UTF-8
        b"\xc7\x01\x05\x00",  # an extension type
        b"\xd6\xff\x00\x00\x00\x00",  # the timestamp extension
        b"\xc0\xc0",  # two values
        b"\xc1",  # never used by the format
    ],
)
def test_hostile_payload_is_refused(payload: bytes) -> None:
    with pytest.raises(PayloadError, match="expected MessagePack"):
        unpack_untrusted(payload)


def test_limits_hold_at_their_edge() -> None:
    assert unpack_untrusted(pack([1, 2]), max_items=2) == [1, 2]
    with pytest.raises(PayloadError):
        unpack_untrusted(pack([1, 2, 3]), max_items=2)
    assert unpack_untrusted(pack("abc"), max_bytes=4) == "abc"
    with pytest.raises(PayloadError, match="at most 4 bytes of MessagePack, got 5"):
        unpack_untrusted(pack("abcd"), max_bytes=4)


def traced(refused: bytes) -> int:
    """The most bytes that a payload takes until it is refused."""
    tracemalloc.start()
    try:
        with pytest.raises(PayloadError):
            unpack_untrusted(refused)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("item", [b"\x80", b"\x90", b"\x81\xc0\xc0", b"\x91\x90", b"\x91" * 200 + b"\x90"])
def test_no_more_lists_and_maps_are_made_than_allowed(item: bytes) -> None:
    """An empty map is one byte packed, and 64 in memory."""
    many = 300_000 // len(item)
    made = sum(byte != 0xC0 for byte in item) * many + (item[0] == 0x81) * many
    bomb = b"\xdd" + many.to_bytes(4, "big") + item * many
    assert len(unpack_untrusted(bomb, max_containers=made + 1)) == many
    with pytest.raises(PayloadError, match=f"at most {made} lists, maps and keys"):
        unpack_untrusted(bomb, max_containers=made)


def test_the_count_of_lists_and_maps_ends_before_they_fill_the_memory() -> None:
    bomb = b"\xdd" + (1_000_000).to_bytes(4, "big") + b"\x81\xc0\xc0" * 1_000_000
    assert traced(bomb) < 40 << 20
    assert traced(pack(dict.fromkeys(range(900_000)))) < 1 << 20


def test_a_list_is_not_made_as_long_as_its_header_claims() -> None:
    assert traced(b"\xdd\x00\x0f\x42\x40" * 500) < 20 << 20  # each of a million


def test_bytes_of_other_writers_are_read() -> None:
    assert unpack_untrusted(msgpack.packb({"a": (1, 2.5), 3: b"x"})) == {"a": [1, 2.5], 3: b"x"}


def test_damaged_bytes_of_our_own_are_refused() -> None:
    for payload in (b"\xa2\x00\x80", b"\x91" * 100_000 + b"\xc0", b"\x92\x01"):
        with pytest.raises(PayloadError, match="expected MessagePack"):
            unpack(payload)


def test_an_integer_that_messagepack_lacks_is_packed_as_something_near_it() -> None:
    value = {"a": [1, 10**30, -(2**63), 2**64 - 1], "b": {"c": (10**400, -(10**5000), True)}, "d": None}
    back = unpack(pack(value))
    assert back["a"] == [1, 1e30, -(2**63), 2**64 - 1]
    assert back["b"]["c"] == [math.inf, -math.inf, True]
    assert back["d"] is None
