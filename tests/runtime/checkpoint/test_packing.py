"""The packed form of state and queues."""

from __future__ import annotations

from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import Batch, RawBatch
from edgert.core.errors import StoreError
from edgert.core.packing import pack
from edgert.runtime.checkpoint.packing import pack_queues, pack_state, unpack_queues, unpack_state
from edgert.runtime.instance.queue import Entry

CELLS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=5)
ROWS = st.lists(st.dictionaries(st.sampled_from("abcd"), CELLS), max_size=6)
RAW = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=9)), max_size=5).map(
    lambda pairs: RawBatch([t for t, _ in pairs], [p for _, p in pairs], 3.0, 1e9, len(pairs))
)
BATCHES = st.builds(lambda rows, mark: Batch(rows, 3.0, mark, 7), ROWS, st.floats(allow_nan=False))
ENTRIES = st.builds(Entry, st.integers(0, 9), BATCHES | RAW, st.just(3.0), st.integers(0, 63))
QUEUES = st.dictionaries(st.text(max_size=4), st.lists(ENTRIES, max_size=4))


@given(QUEUES)
def test_queues_survive_packing_and_their_arrival_is_now(queues: dict[str, list[Entry]]) -> None:
    wanted = {name: entries for name, entries in queues.items() if entries}
    assert unpack_queues(pack_queues(queues), 3.0) == wanted
    assert bool(pack_queues(queues)) == bool(wanted)


@given(st.dictionaries(st.text(max_size=4), st.recursive(CELLS, lambda c: st.lists(c, max_size=3), max_leaves=9)))
def test_state_survives_packing(state: dict[str, Any]) -> None:
    assert unpack_state(pack_state(state)) == state


@given(QUEUES, st.data())
def test_a_damaged_blob_raises_store_error_and_nothing_else(queues: dict[str, list[Entry]], data: Any) -> None:
    blob = pack_queues(queues) or pack_state({"a": 1})
    at = data.draw(st.integers(0, len(blob) - 1))
    damaged = data.draw(
        st.sampled_from([blob[:at], blob + b"x", blob[:at] + bytes([blob[at] ^ 1 << at % 8]) + blob[at + 1 :]])
    )
    try:
        unpack_queues(damaged, 0.0)
    except StoreError:
        pass
    else:
        assert not damaged or unpack_state(damaged) == unpack_state(blob)


@pytest.mark.parametrize("plain", [b"\xc1", b"\xd9", pack([1]), pack(None), pack({"a": 1}), pack({"a": [[1, "rows"]]}),
                                   pack({"a": [[0, "rows", 1, 1.0, [[["x"], [[1, 2]]]]]]})])  # fmt: skip
def test_a_sound_frame_of_something_else_raises_store_error(plain: bytes) -> None:
    with pytest.raises(StoreError, match="expected"):
        unpack_queues(zstandard.compress(plain), 0.0)


@given(st.binary(max_size=60))
def test_any_bytes_raise_store_error(blob: bytes) -> None:
    with pytest.raises(StoreError):
        unpack_state(blob)
