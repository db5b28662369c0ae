"""What an operator keeps by key: of so many keys, and in so much memory, at most; and as a checkpoint tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from sys import getsizeof
from typing import Any, Final, Generic, TypeVar

from edgert.operators.fields import hashable

Value = TypeVar("Value")
MAX_KEYS: Final = 100_000
MEMORY_BYTES: Final = 64 << 20
"""For what one operator keeps of all keys together."""
KEY_BYTES: Final = 260
"""What a key takes beside its value, as measured: a name of up to 64 letters, its places in dictionaries."""
SHORT: Final = 64
"""Letters of a key that are reckoned with that."""


class ByKey(Generic[Value]):
    """A delta or snapshot has the keys that are `gone`, and under `name` an entry for each other, beginning with it."""

    def __init__(
        self, name: str, value_bytes: int, *, most_keys: int | None = None, memory_bytes: int | None = None
    ) -> None:
        """`value_bytes`: what is kept of a key takes so much. None: `MAX_KEYS`, `MEMORY_BYTES`."""
        self._each_bytes, self._memory_bytes = KEY_BYTES + value_bytes, memory_bytes or MEMORY_BYTES
        self._most_keys = min(most_keys or MAX_KEYS, self._memory_bytes // self._each_bytes)
        self._long: dict[Any, int] = {}
        """Keys that are longer than most, with the bytes by which they are."""
        self.heavy: dict[Any, int] = {}
        """Keys of which more is kept than of most, with the bytes by which it is: see `weighs`. Never another dict."""
        self._beyond_bytes = 0
        """Σ of both."""
        self._looked_at = 0
        """So many keys, the oldest, were looked at for their length, less those forgotten since."""
        self.kept: dict[Any, Value] = {}
        """It is never another dict: an operator may give it a name of its own."""
        self.changed: dict[Any, None] = {}
        """Keys to tell in the next delta, which begins with another dict. Who changes what is kept notes it here."""
        self._name = name
        self._gone: dict[Any, None] = {}

    def forget(self, key: Any) -> Value:
        """What was kept of it."""
        self.changed.pop(key, None)
        self._gone[key] = None
        self._looked_at -= 1  # or it was not looked at yet: then others are once more
        if self._beyond_bytes:
            self._beyond_bytes -= self._long.pop(key, 0) + self.heavy.pop(key, 0)
        return self.kept.pop(key)

    def weighs(self, key: Any, beyond_bytes: int) -> None:
        """What is kept of it from now on takes so much more than of most."""
        if beyond_bytes or key in self.heavy:
            self._beyond_bytes += beyond_bytes - self.heavy.get(key, 0)
            self.heavy[key] = beyond_bytes

    def most_keys(self) -> int:
        """How many there may be, as long as they are."""
        kept = self.kept
        if len(kept) > self._looked_at:
            for key in islice(reversed(kept), len(kept) - max(0, self._looked_at)):
                if key not in self._long and (size := _beyond_short(key)):
                    self._long[key] = size
                    self._beyond_bytes += size
            self._looked_at = len(kept)
        if not self._beyond_bytes:
            return self._most_keys
        return min(self._most_keys, max(1, (self._memory_bytes - self._beyond_bytes) // self._each_bytes))

    def forget_beyond(self, drops: Counter[str], most: int | None = None) -> Sequence[Value]:
        """Of more keys (than `most`, if that is less) the one that was new longest ago is forgotten, and counted. To be
        called after each batch. Returns what was kept of them."""
        kept = self.kept
        forgotten: list[Value] = []
        while len(kept) > (allowed := self.most_keys() if most is None else min(most, self.most_keys())):
            # of long keys each that goes makes room for more, so not all that are too many by now have to
            count = max(1, (len(kept) - allowed) // 8) if self._beyond_bytes else len(kept) - allowed
            forgotten += [self.forget(key) for key in list(islice(kept, count))]
        if forgotten:
            drops["too many keys (keys)"] += len(forgotten)
        return forgotten

    def delta(self, entry: Callable[[Value], Iterable[Any]]) -> Any | None:
        """What changed since the last one. `entry`: what there is to tell of a key, beside itself."""
        if not self.changed and not self._gone:
            return None
        kept = self.kept
        state = {"gone": list(self._gone), self._name: [[key, *entry(kept[key])] for key in self.changed]}
        self.changed, self._gone = {}, {}
        return state

    def snapshot(self, entry: Callable[[Value], Iterable[Any]]) -> Any | None:
        """All of it, or None if there is nothing."""
        if not self.kept:
            return None
        return {"gone": [], self._name: [[key, *entry(value)] for key, value in self.kept.items()]}

    def told(self, state: Any) -> Iterator[tuple[Any, ...]]:
        """Forgets what a delta or snapshot says is gone; then its entries, for the operator to apply."""
        for key in state["gone"]:
            self.kept.pop(hashable(key), None)
        self._looked_at = 0
        for key, *rest in state[self._name]:
            yield hashable(key), *rest


def _beyond_short(key: Any) -> int:
    """Bytes by which a key is longer than most."""
    if isinstance(key, tuple):
        return sum(map(_beyond_short, key))
    return getsizeof(key) if isinstance(key, str | bytes) and len(key) > SHORT else 0


def forgets(most: int = MAX_KEYS) -> str:
    """What the docs of an operator say of `forget_beyond`."""
    return (
        f"Of more than {most:,} keys, or of fewer that take more than {MEMORY_BYTES >> 20} MB, the one that was new "
        "longest ago is forgotten, and counted."
    )
