"""The groups of a window operator, an accumulator per window and key: in so much memory, at most; and as a checkpoint
tells them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Raw

from edgert.core.packing import pack
from edgert.core.text.long_text import SHORT, beyond_short
from edgert.flow.spec import ANY
from edgert.operators.base.fields import hashable
from edgert.operators.base.memory import MemoryBudget
from edgert.operators.state.aggregates import Accumulator, Aggregates
from edgert.operators.state.bounded_keys import KEY_BYTES, MEMORY_BYTES, SLOT_BYTES

Key = Any
"""The value of a single key field, a tuple of several, or the empty tuple."""
WINDOW_BYTES: Final = 240
"""Bytes of a window beside its groups, as measured."""
STALE_BYTES: Final = MEMORY_BYTES // 8
"""For what left and is still noted as changed: to look for it each time would cost more."""
_TEXTS: Final = frozenset(("string", ANY))
"""Types of key fields whose values may be long."""


class Groups(dict[float, dict[Key, Accumulator]]):
    """Accumulators by window and key. A delta has those that are `dirty`, under `name`, and the windows that left."""

    def __init__(self, name: str, left: str, aggregates: Aggregates) -> None:
        """`name`, `left`: what they are called in a checkpoint."""
        super().__init__()
        self.dirty: list[tuple[float, Key, Accumulator]] = []
        """Changed accumulators, each noted once per delta. A delta begins another list."""
        self._name, self._left_name = name, left
        self._left: set[float] = set()
        self._stale_bytes = 0
        """Bytes of groups that have left and may still be in `dirty`."""
        self.aggregates = aggregates
        self._each_bytes = KEY_BYTES + SLOT_BYTES * len(aggregates.initial())
        self._beyond: dict[float, int] = {}
        """Window → bytes that its long keys take beyond `KEY_BYTES` each."""
        self._beyond_bytes = 0
        """The sum of `_beyond`."""
        self._oldest: list[float] = []
        """A heap of the windows; of those that left it may still have some."""
        self._touched: set[float] = set()
        """Windows that may have more groups than `_counted` says."""
        self._counted: dict[float, int] = {}
        self._count = 0
        """The sum of `_counted`."""

    def open(self, window: float) -> dict[Key, Accumulator]:
        """The accumulators of a window, to which the caller may add until `held_bytes` is asked for."""
        self._touched.add(window)
        accs = self.get(window)
        if accs is None:
            accs = self[window] = {}
            heapq.heappush(self._oldest, window)
        return accs

    def oldest(self) -> float | None:
        """The oldest window that there is."""
        while self._oldest and self._oldest[0] not in self:
            heapq.heappop(self._oldest)
        return self._oldest[0] if self._oldest else None

    def weighs(self, window: float, key: Key) -> None:
        """To be said of each key that is new in a window, but need not of one text of up to `SHORT` letters."""
        if beyond := beyond_short(key):
            self._beyond[window] = self._beyond.get(window, 0) + beyond
            self._beyond_bytes += beyond

    def put(self, window: float, key: Key, acc: Accumulator) -> None:
        """Keeps it, instead of what was kept of the same group."""
        accs = self.open(window)
        if key not in accs:
            self.weighs(window, key)
        accs[key] = acc

    def leave(self, window: float) -> dict[Key, Accumulator]:
        """Forgets a window. Returns its groups."""
        if window not in self:
            return {}
        self._left.add(window)
        self._stale_bytes += self.bytes_of(window)
        accs = self._forget(window)
        if self._stale_bytes > STALE_BYTES:
            self._forget_stale()
        return accs

    def _forget_stale(self) -> None:
        left, kept = self._left, self.get
        self.dirty[:] = [one for one in self.dirty if one[0] not in left or kept(one[0], {}).get(one[1]) is one[2]]
        self._stale_bytes = 0

    def _forget(self, window: float) -> dict[Key, Accumulator]:
        self._beyond_bytes -= self._beyond.pop(window, 0)
        self._count -= self._counted.pop(window, 0)
        self._touched.discard(window)
        return self.pop(window, {})

    def held_bytes(self) -> int:
        """Approximate memory of the groups without their sketches, bytes. It costs by what was touched since the last
        time."""
        for window in self._touched:
            count = len(self[window])
            self._count += count - self._counted.get(window, 0)
            self._counted[window] = count
        self._touched.clear()
        return WINDOW_BYTES * len(self) + self._each_bytes * self._count + self._beyond_bytes

    def bytes_of(self, window: float) -> int:
        """The part of a window in that."""
        if window not in self:
            return 0
        return WINDOW_BYTES + self._each_bytes * len(self[window]) + self._beyond.get(window, 0)

    def sketch_bytes(self, windows: Iterable[float]) -> int:
        """Approximate memory of the sketches of these windows, bytes."""
        if self.aggregates.plain:
            return 0
        return sum(self.aggregates.sketch_bytes(self[window].values()) for window in windows if window in self)

    # -- checkpoints

    @property
    def changed(self) -> bool:
        """True if there is anything to tell in the next delta."""
        return bool(self.dirty or self._left)

    def changes(self) -> dict[str, Any]:
        """The changes since the last delta that was `told`. The flow stands still meanwhile, so nothing is looked up
        for windows that have not left, and accumulators are packed as they are, with their own slot: to copy 10,000 of
        them, for the collector of garbage to look at, would take four times as long."""
        if self._left:
            self._forget_stale()
        dirty = self.dirty
        windows = {self._left_name: sorted(self._left)}
        if self.aggregates.plain:
            return {**windows, f"whole_{self._name}": Raw(pack(dirty))} if dirty else windows
        stored = self.aggregates.stored
        return {**windows, self._name: [[window, key, stored(acc)] for window, key, acc in dirty]}

    def told(self) -> None:
        """The delta is made."""
        self.dirty, self._left, self._stale_bytes = [], set(), 0

    def snapshot(self) -> dict[str, Any]:
        """All of it."""
        stored = self.aggregates.stored
        groups = [[window, key, stored(acc)] for window, accs in self.items() for key, acc in accs.items()]
        return {self._left_name: [], self._name: groups}

    def restore(self, state: Any) -> None:
        """Applies a delta or a snapshot."""
        for window in state[self._left_name]:
            self._forget(window)
        for window, key, slots in state.get(self._name, ()):
            self.put(window, hashable(key), self.aggregates.restored(slots))
        for window, key, acc in state.get(f"whole_{self._name}", ()):
            self.put(window, hashable(key), self.aggregates.restored(acc[1:]))


class GroupRoom:
    """For all groups of one operator together: `MEMORY_BYTES`, and `sketch_limit_bytes` for their sketches; less where
    the flow's budget leaves less."""

    def __init__(self, windows: Groups, emitted: Groups) -> None:
        self._windows, self._emitted = windows, emitted
        self.memory = MemoryBudget()
        """The operator's part of its flow's budget."""
        self._measured = 0
        """The generation in which the memory of sketches was last looked at."""
        self._sketches = 0
        """Bytes of sketches then, without those of windows that had to leave since."""

    def lacking(self, generation: int) -> Iterator[float]:
        """The oldest window, again and again while the others lack room: the caller lets each leave. To be asked after
        each batch. `generation`: that of the checkpoint to come; sketches are measured once in each."""
        windows, emitted, beyond = self._windows, self._emitted, 0
        if self._measured != generation:
            self._measured = generation
            self._sketches = windows.sketch_bytes(windows) + emitted.sketch_bytes(emitted)
            beyond = self._sketches - windows.aggregates.sketch_limit_bytes
        while beyond > 0 or self._exceeded():
            oldest = min((w for w in (windows.oldest(), emitted.oldest()) if w is not None), default=None)
            if oldest is None:
                return
            if self._sketches:
                its = windows.sketch_bytes((oldest,)) + emitted.sketch_bytes((oldest,))
                self._sketches, beyond = max(0, self._sketches - its), beyond - its
            yield oldest

    def restored(self) -> None:
        """The groups are those of a checkpoint."""
        self.memory.own_bytes = self._windows.held_bytes() + self._emitted.held_bytes()

    def _exceeded(self) -> bool:
        held = self._windows.held_bytes() + self._emitted.held_bytes()
        room = self.memory.room_for(held + self._sketches)
        return held > MEMORY_BYTES or held + self._sketches > room


def make_source(keys: Sequence[tuple[str, str]]) -> list[str]:
    """Lines that make a group of `key`, which is k0, k1, ..., in the window `w`, if there is none. What most keys weigh
    is known; of others it is told."""
    texts = [f"k{number}" for number, (_, kind) in enumerate(keys) if kind in _TEXTS]
    heavy = " or ".join(f"type({k}) is not str or len({k}) > {SHORT}" for k in texts)
    weigh = [f"    if {heavy}:", "        weighs(w, key)"] if texts else []
    return ["if acc is None:", *weigh, "    accs[key] = acc = initial()"]
