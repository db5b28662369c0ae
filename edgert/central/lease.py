"""A lease that only one holds: one row in the Delta table `leases`, taken and prolonged by conditional commits.

Each claim carries a token, one more than the last, as Delta's transaction identifier; of two that claim at the same
time one conflicts. Whoever lost it, by its expiry or to another, must commit nothing any more. Threads may share it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pyarrow as pa

from edgert.central.query import literal
from edgert.central.tables import TIME, Conflict, Table, TableError, join
from edgert.core.errors import EdgertError

_ATTEMPTS: Final = 5


class LeaseLost(EdgertError):
    """Another holds the lease, or ours ran out."""


class Lease:
    """`duration_s`: after a holder's death others wait so long; a shorter one is prolonged (written) more often."""

    def __init__(
        self, root: str, name: str, holder: str, duration_s: float = 60.0, wall: Callable[[], float] = time.time
    ) -> None:
        self._table = Table(join(root, "leases"), partition_by="name")
        self._name = name
        self._mine = f"name = {literal(name)}"
        self._holder = holder
        self._duration_s = duration_s
        self._wall = wall
        self._until = 0.0
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
        if newest is not None and newest["expires"].timestamp() > self._wall() and newest["holder"] != self._holder:
            raise LeaseLost(
                f"lease {self._name}: held by {newest['holder']} until {newest['expires']:%H:%M:%S} UTC; "
                "only one may write these tables"
            )
        self._claim(token)

    def hold(self) -> None:
        """Make sure that it is ours still, and prolong it when half of it has run. Raises `LeaseLost`."""
        with self._lock:
            self._hold()

    def _hold(self) -> None:
        now = self._wall()
        if now >= self._until:
            raise LeaseLost(f"lease {self._name}: ran out {now - self._until:.0f} s ago")
        self._table.refresh()
        if self._table.version(self._application) != self.token:
            raise LeaseLost(f"lease {self._name}: taken by another")
        if self._until - now < self._duration_s / 2:
            self._claim(self.token)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Prolonged by a thread of its own for as long as the block takes. One that is lost stays so: `hold` tells."""
        done = threading.Event()

        def keep() -> None:
            while not done.wait(self._duration_s / 8):
                with suppress(LeaseLost, TableError, Conflict), self._lock:
                    self._hold()

        thread = threading.Thread(target=keep, name=f"lease {self._name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def release(self) -> None:
        """Let others take it at once."""
        with self._lock:
            try:
                self._hold()
                self._claim(self.token, expires=self._wall())
            except (LeaseLost, TableError):
                pass
            self._until = 0.0

    @property
    def _application(self) -> str:
        return f"lease/{self._name}"

    def _claim(self, token: int, expires: float | None = None) -> None:
        until = self._wall() + self._duration_s if expires is None else expires
        row = pa.table(
            {
                "name": [self._name],
                "token": pa.array([token + 1], pa.int64()),
                "holder": [self._holder],
                "expires": pa.array([round(until * 1e6)], TIME),
            }
        )
        for _ in range(_ATTEMPTS):
            try:
                self._table.replace(row, {self._application: token + 1}, self._mine)
                break
            except Conflict as error:
                # It may have been upkeep, which changes nothing of leases.
                self._table.refresh()
                if self._table.version(self._application) != token:
                    raise LeaseLost(f"lease {self._name}: taken by another at the same time") from error
        else:
            raise LeaseLost(f"lease {self._name}: its table is written to by others all the time")
        self.token, self._until = token + 1, until
