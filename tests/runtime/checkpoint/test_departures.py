"""Batches on their way to another gateway: what is packed comes back, and nothing else is taken."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import NO_WATERMARK, Batch
from edgert.core.errors import PayloadError
from edgert.runtime.checkpoint.departures import Departure, pack, unpack_untrusted
from edgert.runtime.checkpoint.packing import pack_state

VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=5)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"time": st.floats(0, 1e10), "source": st.text(max_size=5)}, optional={"a": VALUES, "b": VALUES}
    ),
    max_size=5,
)
DEPARTURES = st.lists(
    st.builds(
        lambda operator, source, producer, rows, watermark, size: Departure(
            "g2", operator, source, producer, Batch(rows, 0.0, watermark, size)
        ),
        st.sampled_from(["window", "window#2"]), st.integers(0, 3), st.integers(0, 3), ROWS,
        st.just(NO_WATERMARK) | st.floats(0, 1e10), st.integers(0, 10**6),
    ),
    max_size=4,
)  # fmt: skip


@given(DEPARTURES)
def test_what_is_packed_comes_back_in_order(departures: list[Departure]) -> None:
    """But for watermarks without rows that a later one follows at once."""
    for sent in pack(departures):
        found = unpack_untrusted(sent.payload, 7.0)
        rows = [(one.operator, one.source, one.producer, row) for one in found for row in one.batch.rows]
        assert rows == [(d.operator, d.source, d.producer, row) for d in departures for row in d.batch.rows]
        assert all(one.batch.arrival == 7.0 for one in found)
        assert found[-1].batch.watermark == departures[-1].batch.watermark


def packed(**changed: Any) -> bytes:
    """One batch with a row, and these fields in place of right ones."""
    right = {"operator": "window", "source": 0, "producer": 0, "size": 10, "watermark": 1.0,
             "runs": [[["time", "source"], [[1.0, "a"]]]]}  # fmt: skip
    return pack_state({"batches": [list((right | changed).values())]})


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"operator": 5}, "the name of an operator"),
        ({"source": -1}, "an integer from 0"),
        ({"source": math.inf}, "an integer from 0"),
        ({"producer": True}, "an integer from 0"),
        ({"size": 2**62}, "an integer from 0"),
        ({"size": math.inf}, "an integer from 0"),
        ({"watermark": math.nan}, "a watermark"),
        ({"watermark": "soon"}, "a watermark"),
        ({"runs": 5}, "names and rows"),
        ({"runs": [[["time"], [[1.0]]]]}, "time and source"),
        ({"runs": [[["time", "source", 3], [[1.0, "a", 1]]]]}, "names of fields"),
        ({"runs": [[["time", "source"], [[1.0]]]]}, "2 values"),
        ({"runs": [[["time", "source"], [["now", "a"]]]]}, "a time"),
        ({"more": 1}, "operator, input, copy"),
    ],
)
def test_what_is_no_batch_is_refused_by_name(changed: dict[str, Any], named: str) -> None:
    assert unpack_untrusted(packed(), 0.0)
    with pytest.raises(PayloadError, match=named):
        unpack_untrusted(packed(**changed), 0.0)


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda cut: packed()[: len(cut)] + cut))
def test_any_bytes_are_taken_or_refused(payload: bytes) -> None:
    try:
        unpack_untrusted(payload, 0.0)
    except PayloadError:
        pass


def test_a_batch_that_holds_more_than_any_gateway_sends_is_refused_before_it_is_expanded() -> None:
    bomb = packed(runs=[[["time", "source"], [[1.0, "a" * (129 << 20)]]]])
    assert len(bomb) < 100_000
    tracemalloc.start()
    with pytest.raises(PayloadError, match="at most"):
        unpack_untrusted(bomb, 0.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
