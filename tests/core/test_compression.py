"""Payloads that may be compressed: what is small stays as it is, what is hostile costs nothing."""

from __future__ import annotations

import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.compression import MAX_EXPANDED_BYTES, compressed, expanded_size, expanded_untrusted
from edgert.core.errors import PayloadError
from edgert.core.packing import pack

FRAME = zstandard.ZstdCompressor().compress(b"content " * 100)


def unsized(content: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(content) + stream.flush()


@given(st.dictionaries(st.text(), st.lists(st.floats(allow_nan=False) | st.text(), max_size=50), max_size=20))
def test_a_packed_map_comes_back_and_never_grows(value: dict[str, list[float | str]]) -> None:
    payload = pack(value)
    small = compressed(payload)
    assert len(small) <= len(payload)
    assert (expanded_untrusted(small), expanded_size(small)) == (payload, len(payload))
    assert expanded_untrusted(payload) == payload, "one that was not compressed is taken too"


def test_what_does_not_shrink_or_is_too_large_travels_as_it_is() -> None:
    assert compressed(b"\x81\xa1a\x01") == b"\x81\xa1a\x01"
    large = bytes(MAX_EXPANDED_BYTES + 1)
    assert compressed(large) is large
    assert len(compressed(large[1:])) < 10_000


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (zstandard.FRAME_HEADER, "not enough data"),
        (FRAME[:-1], "full frame"),
        (FRAME + b"x", "unused data"),
        (FRAME + FRAME, "unused data"),
        (FRAME[:6] + b"\xff" * 20, "got 26 bytes"),
        (unsized(b"a" * 1_000), "no size"),
        (zstandard.ZstdCompressor().compress(bytes(MAX_EXPANDED_BYTES + 1)), "8388609 bytes"),
    ],
)
def test_a_frame_that_is_wrong_or_has_too_much_in_it_is_refused(payload: bytes, why: str) -> None:
    with pytest.raises(PayloadError, match=why):
        expanded_untrusted(payload)


def test_a_frame_that_lies_about_its_content_is_refused() -> None:
    """The size stands behind the magic number and a byte of flags; here in two bytes, less 256."""
    honest = zstandard.ZstdCompressor().compress(bytes(1_000))
    assert int.from_bytes(honest[5:7], "little") + 256 == 1_000
    for told in (999, 1_001, 300, 60_000):
        with pytest.raises(PayloadError):
            expanded_untrusted(honest[:5] + (told - 256).to_bytes(2, "little") + honest[7:])


def test_a_bomb_is_refused_before_a_byte_of_it_is_made() -> None:
    bomb = zstandard.ZstdCompressor(19).compress(bytes(1 << 28))
    tracemalloc.start()
    try:
        with pytest.raises(PayloadError, match="at most"):
            expanded_untrusted(bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 16


@given(st.binary(max_size=60))
def test_any_bytes_behind_the_magic_number_are_content_or_an_error(rest: bytes) -> None:
    try:
        assert len(expanded_untrusted(zstandard.FRAME_HEADER + rest)) <= MAX_EXPANDED_BYTES
    except PayloadError:
        pass
