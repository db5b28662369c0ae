"""The load: what is due by a schedule, whether or not it is taken."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Final

from benchmarks.ingest.trace import messages
from edgert.core.batch import RawBatch
from gateway.ingest.message_size import MESSAGE_BYTES

MOST_ROWS: Final = 500
"""Of one batch: a read from a socket brings no more either, however late it comes (some 200 kB)."""


class Offer:
    """The trace over and over. Messages are due every `tick_s`; what is due and was not fed in time comes at once, in
    batches of `MOST_ROWS`.

    Feeding must be cheap, since it shares the interpreter's lock with what is measured: topics are kept, sizes are
    summed beforehand, and payloads are cut out of one block (some 0.15 µs each). They are copies all the same, so that
    what waits takes the memory that it would take had it come from a socket.
    """

    def __init__(self, rate: float, tick_s: float) -> None:
        trace, _ = messages()
        self._round = len(trace)
        self._block = b"".join(m.payload for m in trace)
        rounds = 1 + -(-MOST_ROWS // self._round)
        places = list(accumulate((len(m.payload) for m in trace), initial=0))
        self._slices = [slice(*place) for place in pairwise(places)] * rounds
        self._sizes = list(accumulate((len(m.payload) + MESSAGE_BYTES for m in trace * rounds), initial=0))
        self._topics = [m.topic for m in trace] * rounds
        self._rate, self._tick_s = rate, tick_s
        self.waiting = 0
        """Rows that are due and not fed yet, beside the batch that was just given out."""

    def due(self, seconds: float) -> Iterator[RawBatch]:
        """Each batch when it is due, or at once if that is past; ends after `seconds` even if it is behind."""
        began = time.monotonic()
        fed = 0
        while (passed := time.monotonic() - began) < seconds:
            ticks = int(passed / self._tick_s)
            until = int(ticks * self._tick_s * self._rate)
            if until > fed:
                last = min(until, fed + MOST_ROWS)
                self.waiting = until - last
                due = int(fed / (self._rate * self._tick_s)) + 1
                yield self.batch(fed, last, began + min(due, ticks) * self._tick_s)
                fed = last
            else:
                time.sleep(max(0.0, began + (ticks + 1) * self._tick_s - time.monotonic()))

    def batch(self, first: int, last: int, due: float) -> RawBatch:
        """The messages from `first` to before `last`, sized as the gateway does it."""
        at, count = first % self._round, last - first
        payloads = list(map(self._block.__getitem__, self._slices[at : at + count]))
        size = self._sizes[at + count] - self._sizes[at]
        return RawBatch(self._topics[at : at + count], payloads, due, time.time(), size)
