"""Messages of a hostile gateway to the collector, under its own name: (flow, payload)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Final

import msgpack

from benchmarks.hostile.gateway import FLOW, SCHEMA, Gateway
from edgert.core.compression import compressed
from edgert.core.results.result_schema import row_columns
from edgert.core.results.results import pack_result

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


ATTACKS: Final[tuple[Attack, ...]] = (
    epochs_with_new_windows, refused_between_good_ones, epochs_never_opened, flows_without_end, bad_rows,
    a_bomb_of_100_000_nils, bombs_of_a_million_nils, bombs_of_a_million_zeros,
)  # fmt: skip
