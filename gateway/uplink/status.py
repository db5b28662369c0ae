"""Figures of the uplink since the start of the process, for the status page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class UplinkStatus:
    acknowledged: Counter[str] = field(default_factory=Counter)
    """Batches deleted from the outbox since the start, by flow."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Rows that wait in the outbox, by flow; at the last turn."""
    sent_bytes: int = 0
    """Since the start, with topics and headers."""
    last_ack: float | None = None
    """Monotonic time of the last acknowledgement."""
    bad_acks: int = 0
    lost_by_tables: int = 0
    """Batches that the tables had and have no more, since the start."""
    error: str = ""
