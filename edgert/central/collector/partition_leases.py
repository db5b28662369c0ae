"""Which partitions a collector takes where several share the results: one lease for each partition, shared evenly.

Everybody who takes part has a row `collector <holder>` in the table `leases`, and each partition a row with its holder;
all rows of a collector are prolonged by one commit. So each sees who lives, and what its share is: whoever has more
gives back, whoever has less takes what is free. A claim carries the token of each partition in it, one more than the
last, as Delta's transaction identifier, so of two that claim the same partition one conflicts and looks again.

That a result lands once does not rest on this: the landing tables' own transaction identifiers see to it, also where
two collectors take the same partition. The leases spare the work that would be done twice.

Clocks may step, as in `lease.py`: how long our own leases last is told by the monotonic clock, and another is dead when
the time that it wrote is past, or when it has written nothing new for as long as a lease lasts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from edgert.central.tables.lease import RELEASED, LeaseLost, application, claim_rows
from edgert.central.tables.query import literal
from edgert.central.tables.table import Table, join
from edgert.core.results.results import PARTITIONS

log = logging.getLogger("edgert.central.collector")
_COLLECTOR: Final = "collector "
_PARTITION: Final = "partition "


class PartitionLeases:
    """The partitions of one collector. Not for more than one thread.

    `holder` must be no other process's. `lease_s`: after a holder's death others wait so long.
    """

    def __init__(
        self,
        root: str,
        holder: str,
        lease_s: float,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = Table(join(root, "leases"), partition_by="name")
        self._holder = holder
        self._lease_s = lease_s
        self._wall = wall
        self._monotonic = monotonic
        self._tokens: dict[int, int] = {}
        self._until = float("-inf")
        """On the monotonic clock."""
        self._seen: dict[str, tuple[float, float]] = {}
        """Another's lease -> until when it says that it lasts, and when that was first seen, on the monotonic clock."""
        self.lost = 0
        """Leases that ran out or went to another before they were given back."""

    @property
    def held(self) -> frozenset[int]:
        """The partitions whose leases are ours, as of the last call of anything else."""
        return frozenset(self._tokens)

    def turn(self) -> frozenset[int]:
        """Say that we live, take what is free of our share. Returns what we have beyond it, to be given back.

        To be called some times per `lease_s`. Raises `TableError`, and `CommitConflict` if others write all the time.
        """
        return self._decide(self._turn)

    def hold(self) -> None:
        """Before each commit of results: raises `LeaseLost` if a partition is ours no more, prolongs the leases when
        half of their time has run. Raises as `turn` does, too."""
        before = self.lost
        self._decide(self._prolong)
        if self.lost > before:
            raise LeaseLost(f"{self.lost - before} partitions were taken by others, or their leases ran out")

    def give_back(self, partitions: Collection[int]) -> None:
        """Let others take them at once. Raises as `turn` does."""
        self._decide(lambda: self._claim((), self._tokens.keys() & set(partitions)))

    def leave(self) -> None:
        """Give all back, and take part no more until the next `turn`. Raises as `turn` does."""
        self._decide(lambda: self._claim((), set(self._tokens), stays=False))

    def _decide(self, how: Callable[[], frozenset[int] | None]) -> frozenset[int]:
        def decided() -> frozenset[int]:
            self._look()
            return how() or frozenset()

        return self._table.decide(decided)

    def _look(self) -> None:
        """Gives up partitions whose leases were lost."""
        late = self._monotonic() >= self._until
        gone = [p for p, token in self._tokens.items() if late or self._table.version(_application(p)) != token]
        if gone:
            self.lost += len(gone)
            why = "their leases ran out" if late else "taken by others"
            log.warning("partitions %s: %s", ", ".join(map(str, gone)), why)
        for partition in gone:
            del self._tokens[partition]

    def _turn(self) -> frozenset[int]:
        others: set[str] = set()
        theirs: set[int] = set()
        dead: list[str] = []
        rows = self._table.read(["name", "holder", "expires"], _ROWS)
        self._note({row["name"]: row["expires"].timestamp() for row in rows})
        for row in rows:
            if row["holder"] == self._holder:
                continue
            lives = self._lives(row["name"])
            if row["name"].startswith(_COLLECTOR):
                if lives:
                    others.add(row["holder"])
                else:
                    dead.append(row["name"])
            elif lives:
                theirs.add(int(row["name"].removeprefix(_PARTITION)))
        rank = sum(other < self._holder for other in others)
        share, rest = divmod(PARTITIONS, len(others) + 1)
        share += rank < rest
        free = [p for p in range(PARTITIONS) if p not in theirs and p not in self._tokens]
        wanted = free[: max(0, share - len(self._tokens))]
        if wanted or dead or self._is_half_over:
            self._claim(wanted, forgotten=dead)
        return frozenset(sorted(self._tokens)[share:])

    def _note(self, leases: Mapping[str, float]) -> None:
        now = self._monotonic()
        known = self._seen
        self._seen = {
            n: known[n] if n in known and known[n][0] == until else (until, now) for n, until in leases.items()
        }

    def _lives(self, name: str) -> bool:
        until, seen = self._seen[name]
        return until > self._wall() and self._monotonic() < seen + self._lease_s

    def _prolong(self) -> None:
        if self._tokens and self._is_half_over:
            self._claim(())

    @property
    def _is_half_over(self) -> bool:
        return self._until - self._monotonic() < self._lease_s / 2

    def _claim(
        self,
        wanted: Iterable[int],
        released: Collection[int] = (),
        *,
        forgotten: Iterable[str] = (),
        stays: bool = True,
    ) -> None:
        """One commit: what we hold is prolonged, `wanted` taken, `released` given back."""
        until = self._monotonic() + self._lease_s
        told = self._wall() + self._lease_s
        tokens = {p: self._table.version(_application(p)) + 1 for p in (*self._tokens, *wanted)}
        mine = f"{_COLLECTOR}{self._holder}"
        names = [mine, *(f"{_PARTITION}{p}" for p in tokens)]
        expires = [told if stays else RELEASED, *(RELEASED if p in released else told for p in tokens)]
        rows = claim_rows(names, [0, *tokens.values()], self._holder, expires)
        where = f"name IN ({', '.join(map(literal, (*names, *forgotten)))})"
        self._table.replace(rows, {_application(p): token for p, token in tokens.items()}, where)
        self._tokens = {p: token for p, token in tokens.items() if p not in released}
        self._until = until if stays else float("-inf")


_ROWS: Final = f"name LIKE '{_COLLECTOR}%' OR name LIKE '{_PARTITION}%'"


def _application(partition: int) -> str:
    return application(f"{_PARTITION}{partition}")
