"""Reports of results that found no room in the outbox: logged when it begins and when it ends, not per batch."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Set

from edgert.store.database import Database

log = logging.getLogger(__name__)

CALM_S = 600.0
"""Seconds without a dropped result, after which the log says that results are no longer dropped."""


class OutboxRoom:
    """Looks at the database's figures after each commit; on the store thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.blocked: set[str] = set()
        """Flows that keep all their results and wait for room: nothing of them is committed or acknowledged."""
        self._begun: dict[tuple[str, str], int] = {}
        """(flow, reason) of rows that are being shed, and the number shed before that began."""
        self._last: dict[tuple[str, str], float] = {}
        """When rows were last shed of it, by the time that the gateway has run."""
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
        """Forgets a flow that no longer runs."""
        self.blocked.discard(flow)

    def shed(self) -> None:
        """Says what is shed since the last time, and what is not any more."""
        database, now = self._database, self._database.running_s
        new = {key: rows for key, rows in database.shed.items() if rows != self._seen.get(key, 0)}
        for key in new.keys() - self._begun.keys():
            self._begun[key] = self._seen.get(key, 0)
            log.warning("flow %s: results are dropped from now on (%s): %s", *key, self._fill())
        self._seen.update(new)
        self._last.update(dict.fromkeys(new, now))
        for key in [key for key in self._begun if now - self._last[key] >= CALM_S]:
            rows = self._seen[key] - self._begun.pop(key)
            log.warning("flow %s: no more results are dropped (%s); %d rows were, and a gap says so", *key, rows)

    def _fill(self) -> str:
        size = self._database.outbox_size
        return f"the outbox has {size.bytes} of {self._database.quota_bytes:.0f} bytes"
