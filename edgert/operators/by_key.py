"""What an operator keeps by key: of so many keys at most, and as a checkpoint tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from edgert.operators.fields import hashable

Value = TypeVar("Value")


class ByKey(Generic[Value]):
    """A delta or snapshot has the keys that are `gone`, and under `name` an entry for each other, beginning with it."""

    def __init__(self, name: str) -> None:
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
        return self.kept.pop(key)

    def forget_beyond(self, most: int, drops: Counter[str]) -> Sequence[Value]:
        """Of more keys the one that was new longest ago is forgotten, and counted. Returns what was kept of them."""
        kept = self.kept
        if len(kept) <= most:
            return ()
        drops["too many keys (keys)"] += len(kept) - most
        return [self.forget(key) for key in list(islice(kept, len(kept) - most))]

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
        for key, *rest in state[self._name]:
            yield hashable(key), *rest


def forgets(most: int) -> str:
    """What the docs of an operator say of `forget_beyond`."""
    return f"Of more than {most:,} keys the one that was new longest ago is forgotten, and counted."
