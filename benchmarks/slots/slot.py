"""A slot that feeds its own sources from memory, as fast as they take it: what is measured is the slot.

Started by `benchmarks.slots.host` in place of `edgert.runtime.slot`; all else about it is the same.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.ingest.trace import messages
from edgert.core.batch import RawBatch
from edgert.core.system_clock import SystemClock
from edgert.links.unix import UnixLink
from edgert.operators.division import CopiesByTopic
from edgert.operators.logic import Message
from edgert.operators.registry import REGISTRY
from edgert.runtime.instance import Instance
from edgert.runtime.slot import Slot

BATCH_ROWS: Final = 100
AHEAD_ROWS: Final = 400
"""So many rows wait at most in front of a source."""
WAIT_S: Final = 0.001
"""How soon it is looked at again when it has as many."""


class FeedingSlot(Slot):
    """Reports also how many messages its sinks gave out, which go nowhere."""

    told = 0

    def step(self, longest_s: float = 0.0) -> None:
        wait_s = WAIT_S
        for run in self._runs.values():
            for source, batches in self._feeds(run):
                while source.queue.rows < AHEAD_ROWS:
                    wait_s = 0.0
                    batch = next(batches)
                    batch.arrival, batch.wall = time.monotonic(), time.time()
                    self.pool.put([(source, 0, batch)], wake=False)
        super().step(wait_s)

    def _feeds(self, run: Any) -> list[tuple[Instance, Any]]:
        found = getattr(run, "feeds", None)
        if found is None:
            found = run.feeds = [
                (copy, _share(first.parameters["topic"], len(copies), number))
                for first, copies in run.flow_run.sources()
                for number, copy in enumerate(copies)
                if copy.name in run.mine
            ]
        return list(found)

    def _send(self, instance: Instance, messages: Sequence[Message]) -> None:
        self.told += len(messages)

    def figures(self) -> dict[str, Any]:
        return {**super().figures(), "told": self.told, "at": time.monotonic()}


def _share(template: Any, copies: int, number: int) -> Any:
    """The trace's messages of the devices of one copy, over and over, in batches."""
    trace, _ = messages()
    copy_of = CopiesByTopic(template, copies)
    mine = [m for m in trace if copies == 1 or copy_of[m.topic] == number]
    at = 0
    while True:
        part = [mine[(at + n) % len(mine)] for n in range(BATCH_ROWS)]
        at += BATCH_ROWS
        size = sum(len(m.payload) for m in part)
        yield RawBatch([m.topic for m in part], [m.payload for m in part], 0.0, 0.0, size)


if __name__ == "__main__":
    FeedingSlot(UnixLink(socket.socket(fileno=int(sys.argv[1]))), REGISTRY, SystemClock()).serve()
