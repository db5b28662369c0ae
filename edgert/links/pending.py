"""Connections of a listener that have not shown yet who they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Generic, TypeVar

One = TypeVar("One")


class PendingConnections(Generic[One]):
    """A new connection always gets a place. Where none is free, the oldest one of the address that has most of them
    gives way: so an address that holds idle connections keeps no other out, nor a second program of its own."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._addresses: dict[One, str] = {}
        """Oldest first."""

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[One]:
        return iter(list(self._addresses))

    def enter(self, one: One, address: str) -> One | None:
        """Gives `one` a place; returns the one that loses its own."""
        gone = None
        if len(self._addresses) >= self._limit:
            ((most, _),) = Counter(self._addresses.values()).most_common(1)
            gone = next(other for other, at in self._addresses.items() if at == most)
            del self._addresses[gone]
        self._addresses[one] = address
        return gone

    def leave(self, one: One) -> None:
        """Frees the place of a connection that has shown who it is, or is gone. It may have lost its place before."""
        self._addresses.pop(one, None)
