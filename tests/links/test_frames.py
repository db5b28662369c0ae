"""Frames: what was packed comes out, however the stream is cut."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import Batch, RawBatch
from edgert.core.config import entries
from edgert.core.errors import PayloadError
from edgert.core.settings.gateway import GatewaySettings
from edgert.links import frames
from edgert.links.frames import MAX_FRAME, FrameSplitter, TooLarge, frame, pack_batch, unpack_batch

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)
FRAMES = st.lists(st.lists(VALUES, min_size=1, max_size=4), max_size=6)
SCALARS = st.none() | st.booleans() | st.integers(-1000, 1000) | st.floats(allow_nan=False) | st.text(max_size=4)
ROWS = st.lists(st.dictionaries(st.sampled_from(["time", "source", "a", "b"]), SCALARS), max_size=8)


@given(FRAMES, st.lists(st.integers(1, 40), max_size=60))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(sent: list[list[Any]], cuts: list[int]) -> None:
    stream = b"".join(frame(*parts) for parts in sent)
    splitter = FrameSplitter()
    got: list[list[Any]] = []
    for size in [*cuts, len(stream)]:
        got += splitter.feed(stream[:size])
        stream = stream[size:]
    assert got == sent


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(PayloadError, match="expected a frame of at most"):
        list(FrameSplitter().feed(struct.pack("<I", MAX_FRAME + 1)))
    with pytest.raises(PayloadError, match="expected MessagePack"):
        list(FrameSplitter().feed(struct.pack("<I", 1) + b"\xc1"))


def test_a_frame_that_no_receiver_would_take_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_FRAME", len(frame("state", b"x" * 100)) - 4)
    assert [*FrameSplitter().feed(frame("state", b"x" * 100))] == [["state", b"x" * 100]]
    with pytest.raises(TooLarge, match="expected at most 109 bytes for a frame of the kind state, got 110"):
        frame("state", b"x" * 101)


def test_the_greatest_message_that_may_be_taken_fits_into_a_frame() -> None:
    (most,) = [e.about.maximum for e in entries(GatewaySettings) if e.path == "sensors.max_packet_bytes"]
    assert most is not None
    assert 1.5 * most < MAX_FRAME


@given(ROWS, st.floats(allow_nan=False), st.floats(allow_nan=False), st.integers(0, 10**9))
def test_a_batch_comes_out_as_it_went_in(
    rows: list[dict[str, Any]], arrival: float, watermark: float, size: int
) -> None:
    batch = Batch(rows, arrival, watermark, size)
    packed = next(iter(FrameSplitter().feed(frame(pack_batch(batch)))))[0]
    again = unpack_batch(packed)
    assert again == batch
    assert [list(row) for row in again.rows] == [list(row) for row in rows], "order of the fields"


@pytest.mark.parametrize("owed", [False, True])
def test_raw_messages_come_out_as_they_went_in(owed: bool) -> None:
    batch = RawBatch(["a/b", "c"], [b"1", b"\x00"], 1.5, 1_700_000_000.0, 203, owed)
    assert unpack_batch(next(iter(FrameSplitter().feed(frame(pack_batch(batch)))))[0]) == batch
