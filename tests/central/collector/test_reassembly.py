"""Results in pieces: cut to the broker's limit, put together on arrival, given up where a piece is missing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.central.collector.reassembly import Reassembly
from edgert.core.errors import PayloadError
from edgert.core.packing import pack
from edgert.core.results.pieces import PACKET_BYTES, Piece, cut, room
from edgert.core.results.results import results_topic, unpack_result_untrusted


def pieces(payload: bytes, size: int, sequence: int = 7, gateway: str = "g1") -> list[Piece]:
    made = [unpack_result_untrusted(p) for p in cut(payload, size, gateway, "f", (1 << 32, 0, sequence))]
    assert all(isinstance(piece, Piece) for piece in made)
    return made  # type: ignore[return-value]


@given(st.binary(min_size=1, max_size=5_000), st.integers(1, 6_000), st.data())
def test_a_result_comes_back_whole_though_pieces_are_sent_again(payload: bytes, size: int, data: st.DataObject) -> None:
    made, reassembly = pieces(payload, size), Reassembly()
    again = data.draw(st.integers(0, len(made) - 1))  # a connection was lost after this piece, and all is sent again
    whole = [reassembly.add(piece) for piece in (*made[:again], *made)]
    assert whole == [None] * (again + len(made) - 1) + [payload]
    assert reassembly.broken == 0


def test_a_missing_piece_gives_the_result_up_and_the_next_one_is_taken() -> None:
    reassembly = Reassembly()
    first, second = pieces(b"a" * 100, 10), pieces(b"b" * 100, 10, sequence=8)
    assert [reassembly.add(p) for p in (*first[:3], *first[4:])] == [None] * 9
    assert reassembly.broken == 1
    assert [reassembly.add(p) for p in second][-1] == b"b" * 100


def test_unfinished_results_of_many_gateways_take_bounded_memory() -> None:
    reassembly = Reassembly(most_bytes=10_000)
    for n in range(100):
        reassembly.add(pieces(bytes(2_000), 1_000, gateway=f"g{n}")[0])
    assert reassembly._bytes <= 10_000
    assert (reassembly.broken, len(reassembly.unfinished)) == (92, 8)


@pytest.mark.parametrize("limit", [500, 1_000, 8_000, 128_000])
@pytest.mark.parametrize("name", ["g", "g" * 64])
def test_no_packet_is_above_the_brokers_limit(limit: int, name: str) -> None:
    topic = results_topic("fleet", name, "f" * 64)
    size = room(limit, topic, name, "f" * 64)
    for payload in cut(bytes(300_000), size, name, "f" * 64, (2**62, 15, 2**62)):
        assert len(payload) + len(topic) + PACKET_BYTES <= limit


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"of": [1, 2]}, "of: expected"),
        ({"at": 3, "pieces": 3}, "at, pieces: expected"),
        ({"pieces": 10**9}, "at, pieces: expected"),
        ({"data": "text"}, "data: expected bytes"),
        ({"data": b""}, "data: expected bytes"),
    ],
)
def test_a_piece_that_cannot_be_is_refused(change: dict[str, object], expected: str) -> None:
    plain = {"v": 1, "gateway": "g1", "flow": "f", "kind": "piece", "of": [1, 0, 1], "at": 0, "pieces": 2, "data": b"x"}
    with pytest.raises(PayloadError, match=expected):
        unpack_result_untrusted(pack({**plain, **change}))
