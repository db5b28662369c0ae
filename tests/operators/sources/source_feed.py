"""Messages for a source, at times given by hand."""

from __future__ import annotations

import json

from edgert.core.batch import Batch, RawBatch
from edgert.operators.base.logic import Now
from edgert.operators.sources.source import Source

WALL = 1_000.0
"""The wall clock says this at monotonic 0."""


def fed(made: Source, monotonic: float, *messages: tuple[str, object], waited: float = 0.0) -> Batch | None:
    """What came out of one turn with (device, event time or raw payload) messages, which arrived at `monotonic` and
    have `waited` since."""
    payloads = [p if isinstance(p, bytes) else json.dumps({"time": p, "v": 1}).encode() for _, p in messages]
    topics = [f"room/{device}" for device, _ in messages]
    batch = RawBatch(topics, payloads, monotonic, WALL + monotonic)
    emissions = made.process(batch, 0, Now(monotonic + waited, WALL + monotonic + waited))
    assert len(emissions) <= 1
    return emissions[0].batch if emissions else None
