"""A map that forgets what was not used for longest: for what names from outside may make grow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """At most `most` entries. Reading or setting one makes it the newest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value, or None if it is unknown or forgotten."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key]

    def set(self, key: K, value: V) -> list[tuple[K, V]]:
        """Keep a value; returns what had to go for it."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        gone = []
        while len(self._entries) > self._most:
            gone.append(self._entries.popitem(last=False))
        return gone

    def pop(self, key: K) -> V | None:
        """Forget one; returns its value."""
        return self._entries.pop(key, None)

    def __getitem__(self, key: K) -> V:
        """The value, which does not become the newest for it."""
        return self._entries[key]

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)
