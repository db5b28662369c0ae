"""Prediction rings: what an instance or a board will use in each window of the next three minutes (TPDS 2017, 4.1.1).

A ring is a list of 90 values, one per window: 30 of 1 s, then 30 of 2 s, then 30 of 3 s. A value is a mean over its
window, per second: core-seconds for CPU, bytes for the network. So rings of instances add up to that of their board,
unnormalised; capacities come in when a score is computed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import isfinite
from operator import itemgetter
from typing import Final

from edgert.core.errors import ProtocolError

SHAPE: Final = ((30, 1.0), (30, 2.0), (30, 3.0))
"""Windows, and seconds per window, from the inside out."""
SECONDS: Final = tuple(seconds for windows, seconds in SHAPE for _ in range(windows))
WINDOWS: Final = len(SECONDS)
STARTS: Final = (0.0, *accumulate(SECONDS))[:-1]
"""Seconds from now at which each window begins."""
HORIZON: Final = sum(SECONDS)
"""Seconds that a ring looks ahead."""
INNER: Final = SHAPE[0][0]
"""Windows of the innermost ring."""


@dataclass(frozen=True, slots=True)
class Ring:
    """The use in each window: `cpu` in cores of the reference board, `link` in bytes per second."""

    cpu: tuple[float, ...]
    link: tuple[float, ...]
    ratio: float | None = None
    """`link` is so many times `cpu` in all windows, as with one instance; None: not known."""


NOTHING: Final = Ring((0.0,) * WINDOWS, (0.0,) * WINDOWS)


@lru_cache(maxsize=64)
def _picker(period_s: float, periods: int) -> Callable[[Sequence[float]], tuple[float, ...]]:
    """Takes the period in which the middle of each window lies; the last one goes on."""
    middles = (start + seconds / 2 for start, seconds in zip(STARTS, SECONDS, strict=True))
    return itemgetter(*(min(int(middle / period_s), periods - 1) for middle in middles))


def windows_of(rates: Sequence[float], period_s: float = 1.0) -> tuple[float, ...]:
    """The rate in the middle of each window. `rates`: means of the next periods, one by one; the last one goes on."""
    return _picker(round(period_s, 1), len(rates))(rates) if rates else NOTHING.cpu


def instance_ring(rates: Sequence[float], cpu_s: float, row_bytes: float, period_s: float = 1.0) -> Ring:
    """Predicted arrivals × time per row (reference core-seconds), and × bytes per row. `period_s`: at least 0.1."""
    windows = windows_of(rates, period_s)
    cpu, link = tuple([rate * cpu_s for rate in windows]), tuple([rate * row_bytes for rate in windows])
    return Ring(cpu, link, row_bytes / cpu_s if cpu_s > 0 else None)


def board_ring(rings: Iterable[Ring], external_cpu: float = 0.0, external_link: float = 0.0) -> Ring:
    """The sum of the rings of a board's instances, with the load of other programs in the innermost windows.

    The paper multiplies these windows by shares that are 0 on a board that runs nothing else. Load of other
    programs adds up here as that of instances does; like the paper's it is believed for 30 s only.
    """
    far = [0.0] * (WINDOWS - INNER)
    parts = list(rings)
    cpu = zip([external_cpu] * INNER + far, *(ring.cpu for ring in parts), strict=True)
    link = zip([external_link] * INNER + far, *(ring.link for ring in parts), strict=True)
    return Ring(tuple(map(sum, cpu)), tuple(map(sum, link)))


def later(ring: Ring, seconds: float) -> Ring:
    """Returns the prediction as seen `seconds` after it was made; its last window goes on."""
    if seconds <= 0:
        return ring
    windows = [_window_at(start + seconds) for start in STARTS]
    return Ring(tuple(ring.cpu[w] for w in windows), tuple(ring.link[w] for w in windows))


def _window_at(offset: float) -> int:
    start, first = 0.0, 0
    for windows, seconds in SHAPE:
        if offset < start + windows * seconds:
            return first + int((offset - start) / seconds)
        start, first = start + windows * seconds, first + windows
    return WINDOWS - 1


VERSION: Final = 1
_HEAD: Final = struct.Struct("<Bff")
PACKED_BYTES: Final = _HEAD.size + 2 * WINDOWS
"""Size of a packed ring: 189 bytes."""
_STEPS: Final = 255
_GREATEST: Final = 3e38


def pack(ring: Ring) -> bytes:
    """For the gossip: per resource the greatest value, and each window as a part of it in 255 steps.

    A window is rounded by at most 1/510 of the greatest. Values above 3e38 are cut to that."""
    peaks = [min(max(values), _GREATEST) for values in (ring.cpu, ring.link)]
    steps = bytearray(_HEAD.pack(VERSION, *peaks))
    for values, peak in zip((ring.cpu, ring.link), peaks, strict=True):
        steps += bytes(min(_STEPS, round(value / peak * _STEPS)) if peak > 0 else 0 for value in values)
    return bytes(steps)


def unpack_untrusted(data: bytes) -> Ring:
    """A packed ring of another board. Raises `ProtocolError` if it is none; other bytes raise nothing else."""
    if len(data) != PACKED_BYTES or data[0] != VERSION:
        got = f"{len(data)} bytes" + (f" of version {data[0]}" if data else "")
        raise ProtocolError(f"prediction ring: expected {PACKED_BYTES} bytes of version {VERSION}, got {got}")
    _, *peaks = _HEAD.unpack_from(data)
    if not all(isfinite(peak) and peak >= 0 for peak in peaks):
        raise ProtocolError(f"prediction ring: expected finite peaks of at least 0, got {peaks}")
    ends = _HEAD.size, _HEAD.size + WINDOWS
    cpu, link = (
        tuple(step * peak / _STEPS for step in data[start : start + WINDOWS])
        for start, peak in zip(ends, peaks, strict=True)
    )
    return Ring(cpu, link)
