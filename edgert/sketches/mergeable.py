"""Sketches that other engines merge: Apache DataSketches, whose bytes Spark unites with functions of its own.

HLL        how many different values
theta      which different values, as a set: sets can be united, intersected, subtracted
KLL        quantiles of numbers

Imported only where a flow has one: the library brings numpy, 15 MB. It draws its own random bits for KLL, so the same
values twice give quantiles that may differ, within the sketch's error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from datasketches import (
    compact_theta_sketch,
    hll_sketch,
    hll_union,
    kll_doubles_sketch,
    tgt_hll_type,
    theta_union,
    update_theta_sketch,
)

OVERHEAD_BYTES: Final = 400
"""Overhead of one sketch: its objects, in Python and in the library."""


class Mergeable(ABC):
    """How sketches of one kind are made, merged, packed and read. Each has `update(value)`; None is that of nothing."""

    @abstractmethod
    def fresh(self) -> Any:
        """A sketch of nothing, to be updated."""

    @abstractmethod
    def merge(self, one: Any, other: Any) -> Any:
        """A sketch of what both hold; both are used up."""

    @abstractmethod
    def pack(self, sketch: Any) -> bytes | None:
        """DataSketches bytes, as they are shipped; None if it holds nothing."""

    @abstractmethod
    def unpack(self, packed: bytes) -> Any:
        """The sketch in bytes of our own, to be updated further."""

    @abstractmethod
    def held_bytes(self, sketch: Any) -> int:
        """Its approximate memory, bytes."""

    @abstractmethod
    def results(self, sketch: Any | None) -> Mapping[str, Any]:
        """Its results by the suffix of the column's name."""

    def stored(self, sketch: Any) -> bytes | None:
        """Works as `pack`, for `unpack` only."""
        return self.pack(sketch)


class Hll(Mergeable):
    """HyperLogLog of 2^lg_k registers in half a byte each."""

    def __init__(self, lg_k: int) -> None:
        self._lg_k = lg_k

    def fresh(self) -> Any:
        return hll_sketch(self._lg_k, tgt_hll_type.HLL_4)

    def merge(self, one: Any, other: Any) -> Any:
        union = hll_union(self._lg_k)
        union.update(one)
        union.update(other)
        return union.get_result(tgt_hll_type.HLL_4)

    def pack(self, sketch: Any) -> bytes | None:
        return None if sketch.is_empty() else bytes(sketch.serialize_compact())

    def unpack(self, packed: bytes) -> Any:
        return hll_sketch.deserialize(packed)

    def held_bytes(self, sketch: Any) -> int:
        return OVERHEAD_BYTES + int(sketch.get_updatable_serialization_bytes())

    def results(self, sketch: Any | None) -> Mapping[str, Any]:
        return {"": 0 if sketch is None else round(sketch.get_estimate())}


class Kll(Mergeable):
    """Tells the quantiles of these ranks, by the suffix of their column."""

    def __init__(self, k: int, quantiles: Mapping[str, float]) -> None:
        self._k, self._quantiles = k, quantiles

    def fresh(self) -> Any:
        return kll_doubles_sketch(self._k)

    def merge(self, one: Any, other: Any) -> Any:
        one.merge(other)
        return one

    def pack(self, sketch: Any) -> bytes | None:
        return None if sketch.is_empty() else bytes(sketch.serialize())

    def unpack(self, packed: bytes) -> Any:
        return kll_doubles_sketch.deserialize(packed)

    def held_bytes(self, sketch: Any) -> int:
        return OVERHEAD_BYTES + 8 * (self._k + int(sketch.num_retained))

    def results(self, sketch: Any | None) -> Mapping[str, Any]:
        if sketch is None:
            return dict.fromkeys(self._quantiles)
        values = sketch.get_quantiles(list(self._quantiles.values()), True)
        return dict(zip(self._quantiles, values, strict=True))


class ThetaSet:
    """The values since it was unpacked or merged, and the set as it was then: a packed set cannot be updated."""

    __slots__ = ("_before", "_lg_k", "_since", "update")

    def __init__(self, lg_k: int, before: Any = None) -> None:
        self._lg_k = lg_k
        self._before = before
        self._since = update_theta_sketch(lg_k)
        self.update = self._since.update

    def whole(self, ordered: bool = True) -> Any:
        """Returns the whole as a compact sketch. Entries beyond the nominal number go."""
        if self._before is None:
            self._since.trim()
            return self._since.compact(ordered)
        if self._since.is_empty():
            return self._before
        union = theta_union(self._lg_k)
        union.update(self._before)
        union.update(self._since)
        return union.get_result(ordered)

    @property
    def held_bytes(self) -> int:
        """A table of hashes that is a quarter full at least."""
        return 32 * int(self._since.num_retained) + (8 * int(self._before.num_retained) if self._before else 0)


class Theta(Mergeable):
    """Sets of 2^lg_k hashes at most."""

    def __init__(self, lg_k: int) -> None:
        self._lg_k = lg_k

    def fresh(self) -> Any:
        return ThetaSet(self._lg_k)

    def merge(self, one: Any, other: Any) -> Any:
        union = theta_union(self._lg_k)
        union.update(one.whole(ordered=False))
        union.update(other.whole(ordered=False))
        return ThetaSet(self._lg_k, union.get_result())

    def pack(self, sketch: Any) -> bytes | None:
        whole = sketch.whole()
        if whole.is_empty():
            return None
        return bytes((whole if whole.is_ordered() else compact_theta_sketch(whole, True)).serialize())

    def stored(self, sketch: Any) -> bytes | None:
        whole = sketch.whole(ordered=False)
        return None if whole.is_empty() else bytes(whole.serialize())

    def unpack(self, packed: bytes) -> Any:
        return ThetaSet(self._lg_k, compact_theta_sketch.deserialize(packed))

    def held_bytes(self, sketch: Any) -> int:
        return 2 * OVERHEAD_BYTES + int(sketch.held_bytes)

    def results(self, sketch: Any | None) -> Mapping[str, Any]:
        return {"": 0 if sketch is None else round(sketch.whole(ordered=False).get_estimate())}


def value_of(value: Any) -> int | float | str:
    """A value as sketches of different values take it. Raises ValueError for what is none (NaN, a list).

    Numbers that are equal are one value, as in an expression: what has no fraction is told as an integer.
    """
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if kind is int or kind is bool:
        return int(value) if -(2**63) <= value < 2**63 else float(value)
    if kind is float and value == value:
        return int(value) if value.is_integer() and -(2.0**63) <= value < 2.0**63 else float(value)
    raise ValueError(f"expected a string, a number or a boolean, got {kind.__name__}")


NOT_A_VALUE: Final = (ValueError, TypeError, OverflowError)
"""Exceptions for a value that cannot be added: `value_of`, or the library for text that is no Unicode."""
