"""HyperLogLog: how many different values there were (Flajolet, Fusy, Gandouet, Meunier 2007, AofA, figure 3).

The first p bits of a value's hash choose one of m = 2^p registers, which keeps the greatest ρ seen: the position of the
first 1 among the other bits. The paper's estimate is α m² / Σ 2^-M, and linear counting of empty registers up to 2.5 m,
where both are worse than their 1.04 / √m. This is the improved raw estimate of Ertl ("New cardinality estimation
algorithms for HyperLogLog sketches", 2017, arXiv:1702.01284), which has no such position: V empty registers that would
be V of the sum, are m σ(V / m) of it. α is the first paper's: Ertl takes its limit for great m, 7 % too much for 16.
Hashes have 64 bits, so corrections for large ranges (for collisions of 32 bits in the first paper, τ in the second) are
not needed.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import Final

LEAST_PRECISION: Final = 4
MOST_PRECISION: Final = 16
_FEW: Final = 16
"""Up to this part of the registers they are told one by one."""


class HyperLogLog:
    """Adding costs a hash and a comparison; the sum that the estimate needs is kept, exactly, as an integer."""

    __slots__ = ("_all", "_changed", "_empty", "_estimate", "_greatest", "_mask", "_shift", "_sum", "registers")

    def __init__(self, precision: int) -> None:
        if not LEAST_PRECISION <= precision <= MOST_PRECISION:
            raise ValueError(f"expected a precision from {LEAST_PRECISION} to {MOST_PRECISION}, got {precision}")
        size = 1 << precision
        self.registers = bytearray(size)
        self._shift = 64 - precision
        self._mask = (1 << self._shift) - 1
        self._greatest = self._shift + 1
        """The greatest ρ."""
        self._empty = size
        self._sum = size << self._greatest
        """Σ 2^(greatest ρ - M)."""
        self._estimate: int | None = 0
        self._changed = array("H")
        """Registers, some of them twice: a set would take 50 times as much memory."""
        self._all = False
        """More changed than is worth to be told apart."""

    def add(self, hashed: int) -> bool:
        """Adds the value with this hash (64 bits); whether that changed anything."""
        return self._raise(hashed >> self._shift, self._greatest - (hashed & self._mask).bit_length())

    def _raise(self, at: int, rank: int) -> bool:
        before = self.registers[at]
        if rank <= before:
            return False
        self.registers[at] = rank
        self._sum += (1 << self._greatest - rank) - (1 << self._greatest - before)
        self._empty -= not before
        self._estimate = None
        if not self._all:
            self._changed.append(at)
            if len(self._changed) > len(self.registers) // _FEW:
                self._changed, self._all = array("H"), True
        return True

    @property
    def estimate(self) -> int:
        """Different values, estimated."""
        if self._estimate is None:
            self._estimate = self._estimated(self._sum, self._empty)
        return self._estimate

    def _estimated(self, total: int, empty: int) -> int:
        size = len(self.registers)
        others = math.ldexp(total - (empty << self._greatest), -self._greatest)
        alpha = {16: 0.673, 32: 0.697, 64: 0.709}.get(size, 0.7213 / (1 + 1.079 / size))
        return round(alpha * size * size / (size * _sigma(empty / size) + others))

    def after(self, hashed: int) -> tuple[int, int | None]:
        """The `estimate` with this value added, and the argument of `take` for that; None if nothing changes."""
        at, rank = hashed >> self._shift, self._greatest - (hashed & self._mask).bit_length()
        before = self.registers[at]
        if rank <= before:
            return self.estimate, None
        total = self._sum + (1 << self._greatest - rank) - (1 << self._greatest - before)
        return self._estimated(total, self._empty - (not before)), hashed

    def take(self, change: int) -> None:
        """Adds the value for which `after` gave it."""
        self.add(change)

    # -- checkpoints

    def changes(self) -> bytes:
        """The changes since the last call: the numbers of registers (two bytes each, little-endian), then their values;
        or all registers, where these are more than a few. The former is never as long as that."""
        changed, everything = self._changed, self._all
        self._changed, self._all = array("H"), False
        if everything:
            return bytes(self.registers)
        return self._some(sorted(set(changed)))

    def _some(self, registers: Sequence[int]) -> bytes:
        count = len(registers)
        return struct.pack(f"<{count}H{count}B", *registers, *(self.registers[at] for at in registers))

    def state(self) -> bytes:
        """All in the form of changes from nothing."""
        held = [at for at, rank in enumerate(self.registers) if rank]
        if len(held) > len(self.registers) // _FEW:
            return bytes(self.registers)
        return self._some(held)

    def apply(self, changes: bytes | Sequence[int]) -> None:
        """Takes over `changes` or `state`, of now or of when they were lists ([register, value, ...]). Raises
        ValueError for those of another precision."""
        size = len(self.registers)
        pairs: Iterable[tuple[int, int]]
        if not isinstance(changes, bytes):
            pairs = list(zip(changes[::2], changes[1::2], strict=True))
        elif len(changes) == size:
            pairs = enumerate(changes)
        else:
            count, odd = divmod(len(changes), 3)
            if odd or count > size // _FEW:
                few = size // _FEW
                raise ValueError(f"expected {size} registers, or up to {few} in 3 bytes each, got {len(changes)} bytes")
            numbers = struct.unpack(f"<{count}H{count}B", changes)
            pairs = zip(numbers[:count], numbers[count:], strict=True)
        for at, rank in pairs:
            if not (0 <= at < size and 0 <= rank <= self._greatest):
                raise ValueError(f"expected a register below {size} of at most {self._greatest}, got {at}: {rank}")
            self._raise(at, rank)


def precision_for(standard_error: float) -> int:
    """The least precision whose standard error (1.04 / √m) is at most this."""
    needed = math.ceil(math.log2((1.04 / standard_error) ** 2) - 1e-9)
    return min(MOST_PRECISION, max(LEAST_PRECISION, needed))


def memory_of(precision: int) -> int:
    """Most bytes of a sketch's arrays: registers, and a seventh (with its spare room) for the list of changed ones."""
    return (1 << precision) * 8 // 7


def _sigma(part: float) -> float:
    """x + Σ 2^(k-1) x^(2^k), k = 1, 2, ... for 0 ≤ x ≤ 1; infinite at 1."""
    if part == 1.0:
        return math.inf
    total, weight = part, 1.0
    while True:
        part *= part
        before = total
        total += part * weight
        if total == before:
            return total
        weight += weight
