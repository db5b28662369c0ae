"""Who may use the places of a listener: those who have not shown yet that they are members, and members."""

from __future__ import annotations

from collections import Counter
from typing import Generic, TypeVar

One = TypeVar("One")


class Waiting(Generic[One]):
    """Connections whose first frame has not come. The oldest gives way to a new one: of its host if that has its share
    already, else of all. So a host that holds idle connections keeps no other host out, and not even itself."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._hosts: dict[One, str] = {}

    def __len__(self) -> int:
        return len(self._hosts)

    def enter(self, one: One, host: str, share: int) -> One | None:
        """Gives `one` a place; returns the one that loses its own. `share`: most places of this host."""
        of_host = [other for other, at in self._hosts.items() if at == host]
        gone = of_host[0] if len(of_host) >= share else None
        if gone is None and len(self._hosts) >= self._limit:
            gone = next(iter(self._hosts))
        if gone is not None:
            del self._hosts[gone]
        self._hosts[one] = host
        return gone

    def leave(self, one: One) -> None:
        """Its first frame came, or it is gone; it may have lost its place before."""
        self._hosts.pop(one, None)


class Served:
    """Requests of members that are carried out: so many at one time, and of one member not all of them."""

    def __init__(self, limit: int, share: int) -> None:
        self._limit, self._share = limit, share
        self._of: Counter[str] = Counter()

    def begin(self, member: str) -> bool:
        """False: there is no place for another request of this member."""
        if self._of.total() >= self._limit or self._of[member] >= self._share:
            return False
        self._of[member] += 1
        return True

    def end(self, member: str) -> None:
        """One request is over."""
        self._of[member] -= 1
        if not self._of[member]:
            del self._of[member]
