"""Messages of a hostile gateway to the collector, under its own name: (flow, payload)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgpack

from benchmarks.hostile.gateway import FLOW, SCHEMA, Gateway
from edgert.core.compression import compressed
from edgert.core.results.result_schema import Schema, row_columns
from edgert.core.results.results import MOST_STREAMS, pack_result

HOSTILE: Final = "g666"
Attack = Callable[[], Iterator[tuple[str, bytes]]]


def epochs_with_new_windows() -> Iterator[tuple[str, bytes]]:
    """Each would make a landing table of its own."""
    for n in range(120):
        g = Gateway(HOSTILE, (n + 1) << 32, dataclasses.replace(SCHEMA, window_s=61.0 + n))
        yield FLOW, pack_result(g.open())


def refused_between_good_ones() -> Iterator[tuple[str, bytes]]:
    """Each batch goes to another table than the one before, so that all of them make commits."""
    g = Gateway(HOSTILE)
    yield FLOW, pack_result(g.open())
    for n in range(2_000):
        yield FLOW, pack_result(g.rows(n % 7))
        yield FLOW, pack_result(g.rows(n % 7, columns=("nonsense",)))


def epochs_never_opened() -> Iterator[tuple[str, bytes]]:
    for n in range(10_000):
        yield FLOW, pack_result(Gateway(HOSTILE, (n + 1) << 32).rows(0))


def flows_without_end() -> Iterator[tuple[str, bytes]]:
    for n in range(1_200):
        g = Gateway(HOSTILE, flow=f"f{n}")
        yield g.flow, pack_result(g.open())


def bad_rows() -> Iterator[tuple[str, bytes]]:
    """Thousands of batches, each with 100 rows for quarantine."""
    return _bad_rows(0, 99, 2_000, small=False)


def a_bomb_of_100_000_nils() -> Iterator[tuple[str, bytes]]:
    return _bad_rows(None, 100_000, 1)


def bombs_of_a_million_nils() -> Iterator[tuple[str, bytes]]:
    return _bad_rows(None, 1_000_000, 6)


def bombs_of_a_million_zeros() -> Iterator[tuple[str, bytes]]:
    return _bad_rows(0, 1_000_000, 10)


def _bad_rows(row: object, rows: int, batches: int, small: bool = True) -> Iterator[tuple[str, bytes]]:
    """Batches with so many rows that are none. `small`: of a few hundred bytes each."""
    g = Gateway(HOSTILE)
    yield FLOW, pack_result(g.open())
    for _ in range(batches):
        payload = msgpack.packb(
            {"v": 1, "kind": "rows", "columns": list(row_columns(SCHEMA)), "rows": [row] * rows, **g.number()}
        )
        if small:
            payload = compressed(payload)
            assert len(payload) < 1_000
        yield FLOW, payload


def empty_maps() -> Iterator[tuple[str, bytes]]:
    """763 bytes each, which are 8 million maps."""
    return _built(_list(100, _list(80_000, b"\x80")), 6)


def maps_of_one() -> Iterator[tuple[str, bytes]]:
    return _built(_list(100, _list(26_000, b"\x81\xc0\xc0")), 6)


def small_empty_maps() -> Iterator[tuple[str, bytes]]:
    """Many batches, each of which has few maps."""
    return _built(_list(1, _list(90_000, b"\x80")), 100)


def nested_lists() -> Iterator[tuple[str, bytes]]:
    """400 deep, 19,800 times."""
    return _built(_list(99, _list(200, b"\x91" * 400 + b"\x90")), 6)


def endless_keys() -> Iterator[tuple[str, bytes]]:
    return _built(_list(1, msgpack.packb(dict.fromkeys(range(900_000)))), 6)


def many_columns() -> Iterator[tuple[str, bytes]]:
    """Other names in each batch."""
    g = Gateway(HOSTILE)
    yield FLOW, pack_result(g.open())
    for n in range(200):
        yield FLOW, compressed(_rows(g, _list(1, b"\x90"), [f"c{n}_{i}" for i in range(20_000)]))


def large_gaps() -> Iterator[tuple[str, bytes]]:
    g = Gateway(HOSTILE)
    yield FLOW, pack_result(g.open())
    for _ in range(300):
        gap = {"v": 1, "kind": "gap", "reason": "x" * 400_000, "rows": 1, "text": "y" * 400_000, "numbers": 1}
        yield FLOW, compressed(msgpack.packb({**gap, **g.number()}))


def many_drops() -> Iterator[tuple[str, bytes]]:
    g = Gateway(HOSTILE)
    yield FLOW, pack_result(g.open())
    for n in range(3_000):
        drops = [["o" * 250 + str(n), f"{i}" * 80, 1] for i in range(256)]
        yield FLOW, compressed(msgpack.packb({"v": 1, "kind": "drops", "drops": drops, **g.number()}))


def acknowledgements_above_the_limit() -> Iterator[tuple[str, bytes]]:
    """Small results of so many streams that all of them in one acknowledgement are above `PACKET_LIMITS`."""
    for flow in (f"{n:062}" for n in range(40)):
        for epoch in range(1, 5):
            opening, rows = Gateway(HOSTILE, epoch << 32, flow=flow), Gateway(HOSTILE, epoch << 32, flow=flow)
            yield flow, pack_result(opening.open())
            first = rows.rows(0)
            for stream in range(1, MOST_STREAMS):
                yield flow, pack_result(dataclasses.replace(first, stream=stream))


def streams_without_end() -> Iterator[tuple[str, bytes]]:
    """Each would be one more transaction identifier of the tables."""
    g = Gateway(HOSTILE)
    yield FLOW, pack_result(g.open())
    first = Gateway(HOSTILE).rows(0)
    for stream in range(1, 5_000):
        yield FLOW, pack_result(dataclasses.replace(first, stream=stream))


def rows_behind_a_gap() -> Iterator[tuple[str, bytes]]:
    """130 bytes each, and 2 MB as lists of texts."""
    g = Gateway(HOSTILE)
    yield FLOW, pack_result(g.open())
    g.number()
    for _ in range(1_000):
        yield FLOW, compressed(_rows(g, _list(10_000, _list(3, b"\xa2ab")), list(row_columns(SCHEMA))))


def long_topics() -> Iterator[tuple[str, bytes]]:
    """120 MB, and four times as much as texts of Python's: one wide character makes all take four bytes."""
    for _ in range(2_000):
        yield "\N{GRINNING FACE}" + "x" * 60_000, b"x"


def empty_messages() -> Iterator[tuple[str, bytes]]:
    for _ in range(50_000):
        yield FLOW, b""


def windows_of_30_000_days() -> Iterator[tuple[str, bytes]]:
    """Three batches of 53 kB, with a day for each row."""
    return _days(10_000, 3)


def batches_of_as_many_days_as_may_be() -> Iterator[tuple[str, bytes]]:
    return _days(16, 1_000)


def many_columns_of_many_days() -> Iterator[tuple[str, bytes]]:
    """Memory of a commit grows with its days times its columns."""
    sums = tuple((f"s{n}", "sum") for n in range(500))
    return _days(16, 200, dataclasses.replace(SCHEMA, window_s=61.0, aggregates=sums))


def _days(days: int, batches: int, schema: Schema = SCHEMA) -> Iterator[tuple[str, bytes]]:
    """So many batches with a row for each of so many days, none of them twice."""
    g = Gateway(HOSTILE, schema=schema)
    yield FLOW, pack_result(g.open())
    one = g.rows(0)
    values = [*one.rows[0][2:3], *[1] * (len(row_columns(schema)) - 3)]
    g.sequence -= 1
    for batch in range(batches):
        starts = [86_400.0 * (batch * days + day) for day in range(days)]
        rows = [[start, start + schema.window_s, *values] for start in starts]
        yield FLOW, pack_result(dataclasses.replace(one, **g.number(), rows=rows))


def _built(rows: bytes, batches: int) -> Iterator[tuple[str, bytes]]:
    g = Gateway(HOSTILE)
    yield FLOW, pack_result(g.open())
    for _ in range(batches):
        yield FLOW, compressed(_rows(g, rows, list(row_columns(SCHEMA))))


def _rows(g: Gateway, rows: bytes, columns: list[str]) -> bytes:
    """A batch whose rows are packed already, since Python would need too much memory for them."""
    head = {"v": 1, "kind": "rows", "columns": columns, **g.number(), "rows": None}
    return bytes(msgpack.packb(head)).removesuffix(b"\xc0") + rows


def _list(many: int, item: bytes) -> bytes:
    return bytes(msgpack.Packer().pack_array_header(many)) + item * many


ATTACKS: Final[tuple[Attack, ...]] = (
    epochs_with_new_windows, refused_between_good_ones, epochs_never_opened, flows_without_end, bad_rows,
    a_bomb_of_100_000_nils, bombs_of_a_million_nils, bombs_of_a_million_zeros, empty_maps, maps_of_one,
    small_empty_maps, nested_lists, endless_keys, many_columns, large_gaps, many_drops,
    acknowledgements_above_the_limit, streams_without_end, rows_behind_a_gap, long_topics, empty_messages,
    windows_of_30_000_days, batches_of_as_many_days_as_may_be, many_columns_of_many_days,
)  # fmt: skip
PACKET_LIMITS: Final[Mapping[Attack, int]] = {acknowledgements_above_the_limit: 16_384}
"""Largest packet of the broker, in bytes, for attacks that are about one."""
