"""Sketches as gateways ship them, and as they never would."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from edgert.operators.state.sketch_kinds import KINDS

KIND_OF = {"distinct": "hll", "distinct_set": "theta", "quantiles": "kll"}
"""Aggregate -> kind of its sketch."""


def sketch(how: str, values: int | Iterable[float]) -> bytes:
    """Of these values; of a number: of so many different ones."""
    kind = KINDS[KIND_OF[how]]
    made = kind.fresh()
    for value in range(values) if isinstance(values, int) else values:
        made.update(float(value))
    packed = kind.pack(made)
    assert packed is not None
    return packed


def damaged(how: str, rng: random.Random, count: int) -> Iterator[bytes]:
    """Good sketches with one or two faults."""
    good = [sketch(how, n) for n in (1, 2, 5, 30, 300, 1000, 30_000)]
    for _ in range(count):
        data = bytearray(rng.choice(good))
        for _ in range(rng.choice((1, 1, 2))):
            at = min(rng.randrange(64) if rng.random() < 0.7 else rng.randrange(len(data)), len(data) - 1)
            match rng.randrange(5):
                case 0:
                    data[at] ^= 1 << rng.randrange(8)
                case 1:
                    data[at] = rng.choice((0, 1, 127, 255, rng.randrange(256)))
                case 2:
                    del data[at : at + rng.choice((1, 4, 8))]
                case 3:
                    data[at:at] = bytes(rng.choice((1, 4, 8)))
                case 4 if len(data) > 16:
                    other = rng.randrange(len(data))
                    data[at], data[other] = data[other], data[at]
        yield bytes(data or b"\0")
