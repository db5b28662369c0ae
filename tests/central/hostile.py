"""Messages of a hostile gateway to the collector: (flow, payload) under its own name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Final

import msgpack

from edgert.core.compression import compressed
from edgert.core.results.result_schema import row_columns
from edgert.core.results.results import pack_result
from tests.central.results_examples import FLOW, SCHEMA, Gateway, contribution

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
    for n in range(1_000):
        yield FLOW, pack_result(g.rows(contribution(n % 7, "a", 1.0)))
        yield FLOW, pack_result(g.rows(contribution(n % 7, "a", 1.0), columns=("nonsense",)))


def epochs_never_opened() -> Iterator[tuple[str, bytes]]:
    for n in range(5_000):
        yield FLOW, pack_result(Gateway(HOSTILE, (n + 1) << 32).rows(contribution(0, "a", 1.0)))


def flows_without_end() -> Iterator[tuple[str, bytes]]:
    for n in range(1_200):
        g = Gateway(HOSTILE, flow=f"f{n}")
        yield g.flow, pack_result(g.open())


def bad_rows() -> Iterator[tuple[str, bytes]]:
    """Thousands of batches, each with 100 rows for quarantine."""
    g = Gateway(HOSTILE)
    yield FLOW, pack_result(g.open())
    body = {"v": 1, "kind": "rows", "columns": list(row_columns(SCHEMA)), "rows": [0] * 99}
    for _ in range(2_000):
        yield FLOW, msgpack.packb({**body, **g.number(0)})


def bombs() -> Iterator[tuple[str, bytes]]:
    """A few hundred bytes each: a million rows that are none."""
    g = Gateway(HOSTILE)
    yield FLOW, pack_result(g.open())
    for row in (None, 0) * 10:
        body = {"v": 1, "kind": "rows", "columns": list(row_columns(SCHEMA)), "rows": [row] * 1_000_000}
        payload = compressed(msgpack.packb({**body, **g.number(0)}))
        assert len(payload) < 1_000
        yield FLOW, payload


ATTACKS: Final[tuple[Attack, ...]] = (
    epochs_with_new_windows, refused_between_good_ones, epochs_never_opened, flows_without_end, bad_rows, bombs,
)  # fmt: skip
