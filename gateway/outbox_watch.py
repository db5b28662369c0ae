"""What becomes of results for which the outbox has no room: said when it begins and when it ends, not per batch."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Set

from edgert.store.database import Database

log = logging.getLogger(__name__)

CALM_BYTES = 0.9
"""Part of the quota below which the outbox has room again."""


class OutboxWatch:
    """Looks at the database's figures after each commit; on the store thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.blocked: set[str] = set()
        """Flows that keep all their results and wait for room: nothing of them is committed or acknowledged."""
        self._begun: dict[tuple[str, str], int] = {}
        """(flow, reason) of what is shed now, and the rows that were shed of it before."""
        self._seen: dict[tuple[str, str], int] = {}

    def committed(self, tried: Iterable[str], refused: Set[str]) -> None:
        """A commit of the flows `tried` was made, without those in `refused`."""
        for flow in refused - self.blocked:
            log.error(
                "flow %s: %s and the flow keeps all its results (outbox.full): nothing of it is committed or "
                "acknowledged until there is room",
                flow, self._fill(),
            )  # fmt: skip
        for flow in (self.blocked & set(tried)) - refused:
            log.info("flow %s: its results found room in the outbox; it goes on", flow)
        self.blocked = (self.blocked - set(tried)) | refused
        self.shed()

    def forget(self, flow: str) -> None:
        """It runs no more."""
        self.blocked.discard(flow)

    def shed(self) -> None:
        """Says what is shed since the last time, and what is not any more."""
        database = self._database
        new = {key: rows for key, rows in database.shed.items() if rows != self._seen.get(key, 0)}
        for key in new.keys() - self._begun.keys():
            self._begun[key] = self._seen.get(key, 0)
            log.warning("flow %s: results are dropped from now on (%s): %s", *key, self._fill())
        self._seen.update(new)
        if not new and database.outbox_size.bytes < CALM_BYTES * database.quota_bytes:
            for key, before in self._begun.items():
                rows = self._seen[key] - before
                log.warning("flow %s: no more results are dropped (%s); %d rows were, and a gap says so", *key, rows)
            self._begun.clear()

    def _fill(self) -> str:
        size = self._database.outbox_size
        return f"the outbox has {size.bytes} of {self._database.quota_bytes:.0f} bytes"
