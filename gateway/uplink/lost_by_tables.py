"""Results that the tables had and have no more: a central side that was restored from a copy, or whose disk lost what
it had confirmed. The collector waits for numbers that were deleted here when it acknowledged them, and nothing after
them would ever land.

It shows when a stream stands still, and the collector, asked for it, knows less of it than was deleted. Then the outbox
gets what can be had: the opening again, and a gap in place of the rest. Where the answer was not the truth (of a
collector that others have overtaken), the tables have these numbers and take neither.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from edgert.core.results.results import Acknowledgement
from edgert.store.database import Database
from gateway.uplink.reconcile import is_foreign

log = logging.getLogger(__name__)


def fill(database: Database, flow: str, message: Acknowledgement, epochs: Collection[int]) -> int:
    """Takes an answer about `epochs` that stood still and were asked for. Returns how many batches are lost. Raises
    `StoreError`."""
    departed = database.departed(flow)
    told = {(epoch, stream): n for (name, epoch, stream), n in message.acks.items() if name == flow}
    greatest = max((epoch for epoch, _ in told), default=0)
    if is_foreign(departed, greatest, {stream: n for (epoch, stream), n in told.items() if epoch == greatest}):
        return 0
    lost = 0
    for epoch in sorted(set(epochs) & departed.keys()):
        for stream in departed[epoch]:
            lost += database.fill(flow, epoch, stream, told.get((epoch, stream), 0))
    if lost:
        log.error(
            "flow %s: the tables lack %d batches that they had acknowledged, and that were deleted here then; "
            "the table `gaps` will say so, and what came after them goes on",
            flow,
            lost,
        )
    return lost
