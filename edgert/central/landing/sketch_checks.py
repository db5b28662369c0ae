"""Checks that bytes are a sketch that Spark can merge with others: one that is not would fail every query over its
table.

The bytes are looked at here, in bounded time, and given to no library: those trust their lengths and counts. What is
checked is all that a reader relies on; what a sketch *says* (its estimate) is its gateway's word, as with any number.

    HLL    list: coupons │ set: coupons │ registers: sums, 2048 bytes of two registers each, exceptions
    theta  count, theta, that many hashes below it in ascending order
    KLL    n, offsets of the levels, least and greatest value, the values of each level (sorted, but for the lowest)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from struct import Struct
from typing import Final

import numpy as np

from edgert.core.results.result_schema import HLL_LG_K, KLL_K, MOST_COUNT, THETA_LG_K

_REGISTERS: Final = 1 << HLL_LG_K
_HLL_FAMILY, _THETA_FAMILY, _KLL_FAMILY = 7, 3, 15
_EMPTY, _COMPACT, _OUT_OF_ORDER, _FULL_SIZE = 4, 8, 16, 32
_HLL_HEAD: Final = Struct("<8BdddII")
_UINT: Final = Struct("<I")
_MOST_LISTED: Final = 7
_MOST_IN_SET: Final = _REGISTERS // 8 * 3 // 4
"""Coupons: with more of them a sketch goes over to a set, and then to registers."""
_EXCEPTION: Final = 15
_GREATEST_VALUE: Final = 63
_ONE: Final = 1 << 26
"""The value 1 at the address 0."""
_ZEROS: Final = np.array([(byte & 15 == 0) + (byte >> 4 == 0) for byte in range(256)])
_FIFTEENS: Final = np.array([(byte & 15 == 15) + (byte >> 4 == 15) for byte in range(256)])
"""How many registers of such a kind a byte has."""


def is_hll(data: bytes) -> bool:
    """HLL_4 at lgK 12, compact, of at least one value."""
    if len(data) < 12 or data[1] != 1 or data[2] != _HLL_FAMILY or data[3] != HLL_LG_K:
        return False
    ints, flags, mode = data[0], data[5], data[7]
    if data[4] > HLL_LG_K or flags & _EMPTY or not flags & _COMPACT or flags & ~(_COMPACT | _OUT_OF_ORDER | _FULL_SIZE):
        return False
    if (ints, mode) == (2, 0):
        return 1 <= data[6] <= _MOST_LISTED and _are_coupons(data[8:], data[6])
    if (ints, mode) == (3, 1):
        (count,) = _UINT.unpack_from(data, 8)
        has_room = 5 <= data[4] <= HLL_LG_K - 3 and 4 * count <= 3 << data[4]  # in the table that a reader makes
        return 1 <= count <= _MOST_IN_SET and has_room and _are_coupons(data[12:], count)
    return (ints, mode) == (10, 2) and len(data) >= 40 + _REGISTERS // 2 and _are_registers(data)


def _are_coupons(data: bytes, count: int) -> bool:
    """`count` different ones, each a value (from 1) above its 26 bits of address."""
    if len(data) != 4 * count:
        return False
    coupons = np.sort(np.frombuffer(data, "<u4"))
    return bool(coupons[0] >= _ONE and (coupons[1:] > coupons[:-1]).all())


def _are_registers(data: bytes) -> bool:
    *_, least, _, hip, low, high, at_least, exceptions = _HLL_HEAD.unpack_from(data)
    body = np.frombuffer(data, np.uint8, _REGISTERS // 2, 40)
    if len(data) != 40 + len(body) + 4 * exceptions or least >= _GREATEST_VALUE:
        return False
    if not (0 <= hip < 2.0**63 and 0 <= low <= _REGISTERS and 0 <= high <= _REGISTERS and low + high > 0):
        return False
    often = np.bincount(body, minlength=256)
    if at_least == 0 or often @ _ZEROS != at_least or often @ _FIFTEENS != exceptions:
        return False
    if not exceptions:
        return True
    registers = np.column_stack((body & 15, body >> 4)).ravel()
    coupons = np.frombuffer(data, "<u4", exceptions, 40 + len(body))
    values = coupons >> 26
    slots = np.sort(coupons & _ONE - 1)
    if not np.array_equal(slots, np.flatnonzero(registers == _EXCEPTION)):
        return False
    return bool(values.min() >= least + _EXCEPTION and values.max() <= _GREATEST_VALUE)


_SEED_HASH: Final = b"\xcc\x93"
"""Hash of the seed 9001, which all sketches have."""
_ORDERED: Final = 2 | _COMPACT | 16
_MOST_HASHES: Final = 1 << THETA_LG_K
_ALL: Final = 2**63 - 1


def is_theta(data: bytes) -> bool:
    """Compact, ordered, of at least one and at most 4,096 hashes."""
    if len(data) < 16 or data[1:3] != bytes((3, _THETA_FAMILY)) or data[5] != _ORDERED or data[6:8] != _SEED_HASH:
        return False
    longs = data[0]
    count = 1 if longs == 1 else _UINT.unpack_from(data, 8)[0]
    if longs not in (1, 2, 3) or not 1 <= count <= _MOST_HASHES or len(data) != 8 * (longs + count):
        return False
    theta = int.from_bytes(data[16:24], "little") if longs == 3 else _ALL
    hashes = np.frombuffer(data, "<u8", count, 8 * longs)
    return bool(hashes[0] > 0 and hashes[-1] < theta <= _ALL and (hashes[1:] > hashes[:-1]).all())


_SINGLE, _LOWEST_SORTED = 4, 2
_LEAST_ROOM: Final = 8
_KLL_HEAD: Final = Struct("<4BH2BQH2B")
_MOST_LEVELS: Final = 60
_DOUBLE: Final = Struct("<d")


def is_kll(data: bytes) -> bool:
    """KLL of finite doubles, k 200, of at least one value."""
    if len(data) < 16 or data[2] != _KLL_FAMILY or data[4:6] != KLL_K.to_bytes(2, "little") or data[6:8] != b"\x08\0":
        return False
    if data[:2] == b"\2\2":
        return (
            data[3] in (_SINGLE, _SINGLE | _LOWEST_SORTED)
            and len(data) == 16
            and math.isfinite(_DOUBLE.unpack_from(data, 8)[0])
        )
    return data[:2] == b"\5\1" and not data[3] & ~_LOWEST_SORTED and len(data) >= 48 and _are_levels(data)


def _are_levels(data: bytes) -> bool:
    *_, n, least_k, levels, unused = _KLL_HEAD.unpack_from(data)
    begin = 20 + 4 * levels
    if least_k != KLL_K or unused or not 1 <= levels <= _MOST_LEVELS or len(data) < begin + 24:
        return False
    items, rest = divmod(len(data) - begin - 16, 8)
    offsets = Struct(f"<{levels}I").unpack_from(data, 20)
    if rest or offsets[0] + items != _capacity(levels):
        return False
    ends = [*(offset - offsets[0] for offset in offsets[1:]), items]
    sizes = [end - begin for begin, end in pairwise((0, *ends))]
    if min(sizes) < 0 or not 2 <= n <= MOST_COUNT or sum(size << level for level, size in enumerate(sizes)) != n:
        return False
    found = np.frombuffer(data, "<f8", items + 2, begin)
    values = found[2:]
    if not np.isfinite(found).all() or values.min() < found[0] or values.max() > found[1]:
        return False
    falls = set((np.flatnonzero(values[1:] < values[:-1]) + 1).tolist())
    return all(at in ends or (at < ends[0] and not data[3] & _LOWEST_SORTED) for at in falls)


@cache
def _capacity(levels: int) -> int:
    """Values for which a sketch of so many levels has room: a third less from level to level, downwards."""
    return sum(max(_LEAST_ROOM, (2 * KLL_K * 2**depth // 3**depth + 1) >> 1) for depth in range(levels))


CHECKS: Final[Mapping[str, Callable[[bytes], bool]]] = {
    "distinct": is_hll,
    "distinct_set": is_theta,
    "quantiles": is_kll,
}
