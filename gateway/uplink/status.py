"""Figures of the uplink since the start of the process, for the status page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class UplinkStatus:
    acknowledged: int = 0
    """Batches deleted from the outbox since the start."""
    sent_bytes: int = 0
    """Since the start, with topics and headers."""
    last_ack: float | None = None
    """Monotonic time of the last acknowledgement."""
    bad_acks: int = 0
    lost_by_tables: int = 0
    """Batches that the tables had and have no more, since the start."""
    error: str = ""
