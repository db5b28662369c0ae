"""State by key, with bounds on the number of keys and on memory, and its form in a checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from edgert.core.text.long_text import beyond_short
from edgert.operators.base.fields import hashable
from edgert.operators.base.memory import MemoryBudget

Value = TypeVar("Value")
MAX_KEYS: Final = 100_000
MEMORY_BYTES: Final = 64 << 20
"""For what one operator keeps of all keys together."""
KEY_BYTES: Final = 260
"""Bytes of a key beside its value, as measured: a name of up to 64 letters, its places in dictionaries."""
SLOT_BYTES: Final = 40
"""Bytes of each number in a list that is kept of a key, as measured."""
PORTIONS: Final = 100
"""In so many portions all that is kept would be forgotten."""


class BoundedKeys(Generic[Value]):
    """Values by key, of so many keys and in so much memory, for an operator that forgets what is `too_many`."""

    def __init__(self, value_bytes: int, *, most_keys: int | None = None, memory_bytes: int | None = None) -> None:
        """`value_bytes`: what is kept of a key takes so much. None: `MAX_KEYS`, `MEMORY_BYTES`."""
        self._each_bytes = KEY_BYTES + value_bytes
        self.memory = MemoryBudget(memory_bytes or MEMORY_BYTES)
        """The operator's part of its flow's budget."""
        self.sketch_bytes = 0
        """Bytes of the sketches of a key, of all the mean, when they were measured last."""
        self._most_keys = most_keys or MAX_KEYS
        self.heavy: dict[Any, int] = {}
        """Keys that take more than most, with the bytes by which they do: see `weighs`. Never another dict."""
        self.beyond_bytes = 0
        """Σ of them, and of what the operator adds to it and takes off again with what it forgets: where most differ in
        what they take, that costs less than to have them in `heavy`."""
        self.kept: dict[Any, Value] = {}
        """The kept keys. It is never replaced by another dict: an operator may give it a name of its own."""

    def weighs(self, key: Any, beyond_bytes: int = 0) -> None:
        """Sets how many bytes the state of a key takes beyond that of most. To be called for a new key, too, unless it
        is one text of up to `SHORT` letters, as most are: where all keys are new the call costs time."""
        beyond_bytes += beyond_short(key)
        if beyond_bytes or self.heavy:
            self.beyond_bytes += beyond_bytes - self.heavy.pop(key, 0)
            if beyond_bytes:
                self.heavy[key] = beyond_bytes

    def forget(self, key: Any) -> Value:
        """Forgets a key. Returns its value."""
        if self.heavy:
            self.beyond_bytes -= self.heavy.pop(key, 0)
        return self.kept.pop(key)

    def most_keys(self) -> int:
        """Returns how many there may be, as heavy as they are."""
        room = self.memory.room_for(self.held_bytes())
        return min(self._most_keys, max(1, int(room - self.beyond_bytes) // (self._each_bytes + self.sketch_bytes)))

    def held_bytes(self) -> int:
        """Approximate memory of what is kept, bytes."""
        return (self._each_bytes + self.sketch_bytes) * len(self.kept) + self.beyond_bytes

    def too_many(self, most: int | None = None) -> Sequence[Any]:
        """Keys to forget, those that were new longest ago, if there are too many (more than `most`, if that is less):
        to be asked after each batch, until there are none."""
        allowed = self.most_keys()
        beyond = len(self.kept) - (allowed if most is None else min(most, allowed))
        if beyond <= 0:
            return ()
        # Of heavy keys each that goes makes room for more, so not all that are too many by now have to. And a dict
        # passes all that was deleted from its front to find what is first now: it is asked for many keys at once.
        count = max(1, len(self.kept) // PORTIONS, beyond // 8 if self.beyond_bytes else beyond)
        return list(islice(self.kept, count))


class ByKey(BoundedKeys[Value]):
    """A delta or snapshot has the keys that are `gone`, and under `name` an entry for each other, beginning with it."""

    def __init__(
        self, name: str, value_bytes: int, *, most_keys: int | None = None, memory_bytes: int | None = None
    ) -> None:
        super().__init__(value_bytes, most_keys=most_keys, memory_bytes=memory_bytes)
        self.changed: dict[Any, None] = {}
        """Keys to tell in the next delta, which begins with another dict. Who changes what is kept notes it here."""
        self._name = name
        self._told: dict[Any, None] = {}
        """Keys that the state before the next delta holds. No other has to be taken back: what comes and goes between
        two of them leaves nothing."""
        self.gone: dict[Any, None] = {}

    def forget(self, key: Any) -> Value:
        self.changed.pop(key, None)
        if key in self._told:
            self.gone[key] = self._told.pop(key)
        return super().forget(key)

    def forget_beyond(self, drops: Counter[str], most: int | None = None) -> Sequence[Value]:
        """Forgets and counts what is `too_many`. To be called after each batch. Returns what was kept of them."""
        forgotten: list[Value] = []
        while keys := self.too_many(most):
            forgotten += map(self.forget, keys)
        if forgotten:
            drops["too many keys (keys)"] += len(forgotten)
        return forgotten

    def delta(self, entry: Callable[[Value], Iterable[Any]]) -> Any | None:
        """The changes since the last delta. `entry`: packs the value of a key."""
        if not self.changed and not self.gone:
            return None
        kept = self.kept
        state = {"gone": list(self.gone), self._name: [[key, *entry(kept[key])] for key in self.changed]}
        self._told |= self.changed
        self.changed, self.gone = {}, {}
        return state

    def snapshot(self, entry: Callable[[Value], Iterable[Any]]) -> Any | None:
        """All of it, or None if there is nothing."""
        if not self.kept:
            return None
        return {"gone": [], self._name: [[key, *entry(value)] for key, value in self.kept.items()]}

    def told(self, state: Any) -> Iterator[tuple[Any, ...]]:
        """Forgets what a delta or snapshot says is gone; then its entries, for the operator to apply."""
        for key in map(hashable, state["gone"]):
            self._told.pop(key, None)
            if key in self.kept:
                super().forget(key)
        for told, *rest in state[self._name]:
            key = hashable(told)
            if key not in self.kept:
                self.weighs(key)
            self._told[key] = None
            yield key, *rest
        self.memory.own_bytes = self.held_bytes()


def forgets(most: int = MAX_KEYS) -> str:
    """The text on `forget_beyond` in the docs of an operator."""
    return (
        f"Of more than {most:,} keys, or of fewer that take more than {MEMORY_BYTES >> 20} MB, those that were new "
        "longest ago are forgotten, at least a hundredth at once, until the others have room, and counted."
    )
