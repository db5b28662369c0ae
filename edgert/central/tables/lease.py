"""A lease that only one holds: one row in the Delta table `leases`, taken and prolonged by conditional commits.

Each claim carries a token, one more than the last, as Delta's transaction identifier; of two that claim at the same
time one conflicts. Whoever lost it, by its expiry or to another, must commit nothing any more. Threads may share it.

Clocks may step: a holder knows by its monotonic clock how long its own lease lasts. Another is taken for dead when the
time that it wrote is past, or when its token has stood still for the lease's duration of one's own monotonic clock.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from edgert.central.tables.query import literal
from edgert.central.tables.table import TIME, CommitConflict, Table, TableError, join
from edgert.core.errors import EdgertError

_ATTEMPTS: Final = 5
RELEASED: Final = 0.0
"""When a lease ran out that was given back: long ago, on any clock."""


class LeaseLost(EdgertError):
    """Another holds the lease (`holder`, "" where it is not known), or ours ran out."""

    def __init__(self, text: str, holder: str = "") -> None:
        super().__init__(text)
        self.holder = holder


class TableLease:
    """`holder` must be no other's (see `own_name`). `duration_s`: after a holder's death others wait so long; a
    shorter one is prolonged (written) more often. It is the same for all who want this lease."""

    def __init__(
        self,
        root: str,
        name: str,
        holder: str,
        duration_s: float = 60.0,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = Table(join(root, "leases"), partition_by="name")
        self._name = name
        self._mine = f"name = {literal(name)}"
        self._holder = holder
        self._duration_s = duration_s
        self._wall = wall
        self._monotonic = monotonic
        self._until = 0.0
        """On the monotonic clock; 0: not held."""
        self._seen = 0, 0.0
        """Another's token, and when it was first seen, on the monotonic clock."""
        self._lock = threading.RLock()
        self.token = 0

    def acquire(self) -> None:
        """Take the lease. Raises `LeaseLost`, naming the holder and until when, if another has it."""
        with self._lock:
            self._acquire()

    def _acquire(self) -> None:
        self._table.refresh()
        token = self._table.version(self._application)
        rows = self._table.read(["token", "holder", "expires"], self._mine)
        newest = max(rows, key=lambda r: int(r["token"]), default=None)
        if newest is not None and newest["holder"] != self._holder and self._lives(newest):
            raise LeaseLost(
                f"lease {self._name}: held by {newest['holder']} until {newest['expires']:%H:%M:%S} UTC; "
                "only one may write these tables",
                str(newest["holder"]),
            )
        self._claim(token, token + 1)

    def _lives(self, other: Mapping[str, Any]) -> bool:
        if other["expires"].timestamp() <= self._wall():
            return False
        token, now = int(other["token"]), self._monotonic()
        if token != self._seen[0]:
            self._seen = token, now
        return now < self._seen[1] + self._duration_s

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Within, a thread prolongs it once it is held, however long the holder is busy with something else. If that
        fails, `hold` says so."""
        ended = threading.Event()
        thread = threading.Thread(target=self._keep, args=(ended,), name=f"lease {self._name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _keep(self, ended: threading.Event) -> None:
        while not ended.wait(self._duration_s / 6):
            with self._lock, suppress(LeaseLost, TableError, CommitConflict):
                if self._until:
                    self._hold()

    def hold(self) -> None:
        """Make sure that it is ours still, and prolong it when half of it has run. Raises `LeaseLost`."""
        with self._lock:
            self._hold()

    def _hold(self) -> None:
        now = self._monotonic()
        if now >= self._until:
            raise LeaseLost(f"lease {self._name}: ran out {now - self._until:.0f} s ago")
        self._table.refresh()
        if self._table.version(self._application) != self.token:
            raise LeaseLost(f"lease {self._name}: taken by another")
        if self._until - now < self._duration_s / 2:
            self._claim(self.token, self.token + 1)

    def rise_above(self, token: int) -> None:
        """Go on with a token above one that a table has of this lease: `leases` was removed, or put back from a copy,
        and counts anew. Raises `LeaseLost`, also for whoever only believes that the lease is his."""
        with self._lock:
            self._hold()
            if self.token <= token:
                self._claim(self.token, token + 1)

    def release(self) -> None:
        """Let others take it at once."""
        with self._lock:
            try:
                self._hold()
                self._claim(self.token, self.token + 1, expires=RELEASED)
            except (LeaseLost, TableError):
                pass
            self._until = 0.0

    @property
    def _application(self) -> str:
        return application(self._name)

    def _claim(self, last: int, token: int, expires: float | None = None) -> None:
        """`last`: the token that no other owner may have followed meanwhile."""
        until = self._monotonic() + self._duration_s
        expires = self._wall() + self._duration_s if expires is None else expires
        row = claim_rows([self._name], [token], self._holder, [expires])
        for _ in range(_ATTEMPTS):
            try:
                self._table.replace(row, {self._application: token}, self._mine)
                break
            except CommitConflict as error:
                # It may have been upkeep, which changes nothing of leases.
                self._table.refresh()
                if self._table.version(self._application) != last:
                    raise LeaseLost(f"lease {self._name}: taken by another at the same time") from error
        else:
            raise LeaseLost(f"lease {self._name}: its table is written to by others all the time")
        self.token, self._until = token, until


def own_name() -> str:
    """For a holder: host and process, for whoever reads it, and a part that no other has. Two containers may have the
    same host name, and the same process number in it."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class LeaseClaim:
    """The holder of a lease, and its end (s since the epoch) if it is not renewed."""

    name: str
    holder: str
    expires: float


def claims(root: str) -> list[LeaseClaim]:
    """The newest claim of each lease, by name. Raises `TableError`."""
    table = Table(join(root, "leases"), partition_by="name")
    table.refresh()
    newest: dict[str, dict[str, Any]] = {}
    for row in table.read(["name", "token", "holder", "expires"], "true"):
        if row["name"] not in newest or row["token"] > newest[row["name"]]["token"]:
            newest[row["name"]] = row
    return [LeaseClaim(name, row["holder"], row["expires"].timestamp()) for name, row in sorted(newest.items())]


def application(name: str) -> str:
    """The name of a lease in Delta's transaction identifiers."""
    return f"lease/{name}"


def claim_rows(names: Sequence[str], tokens: Sequence[int], holder: str, expires: Sequence[float]) -> pa.Table:
    """Rows of the table `leases`; `expires` in s since the epoch."""
    return pa.table(
        {
            "name": list(names),
            "token": pa.array(tokens, pa.int64()),
            "holder": [holder] * len(names),
            "expires": pa.array([round(s * 1e6) for s in expires], TIME),
        }
    )
