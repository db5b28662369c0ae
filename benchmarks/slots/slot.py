"""A slot that feeds its own sources from memory, as fast as they take it or at a rate: what is measured is the slot.

Started by `benchmarks.slots.host` in place of `edgert.runtime.slot`; all else about it is the same. A rate is open-
loop: what is due is fed whether or not the slot keeps up, and its latency counts from when its first row was due.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.ingest.trace import messages
from edgert.core.batch import RawBatch
from edgert.core.system_clock import SystemClock
from edgert.links.unix import UnixLink
from edgert.operators.base.logic import PlainMessage
from edgert.operators.registry import REGISTRY
from edgert.operators.state.partitioning import CopiesByTopic
from edgert.runtime.instance.instance import Instance
from edgert.runtime.pool.activity import Activity
from edgert.runtime.slot.__main__ import Slot

BATCH_ROWS: Final = 100
AHEAD_ROWS: Final = 400
"""So many rows wait at most in front of a source."""
RATE: Final = "EDGERT_BENCH_RATE"
"""Environment: rows per second of all slots together; without it as many as they take."""
WAIT_S: Final = 0.001
"""How soon it is looked at again when it has as many."""


class FeedingSlot(Slot):
    """Reports also how many messages its sinks gave out, which go nowhere; how long rows took; and what was shed."""

    told = 0
    rate = float(os.environ.get(RATE, "0"))

    def step(self, longest_s: float = 0.0) -> None:
        wait_s = WAIT_S
        for run in self.runs.values():
            for feed in self._feeds(run):
                for batch in feed.due(self.rate) if self.rate else feed.room():
                    wait_s = 0.0
                    self.pool.put([(feed.source, 0, batch)], wake=False)
        super().step(wait_s)

    def _feeds(self, run: Any) -> list[Feed]:
        if not hasattr(run, "feeds"):
            run.feeds = [
                Feed(copy, *_share(first.parameters["topic"], len(copies), number))
                for first, copies in run.flow_run.sources()
                for number, copy in enumerate(copies)
                if copy.name in run.mine
            ]
        found: list[Feed] = run.feeds
        return found

    def _send(self, instance: Instance, messages: Sequence[PlainMessage]) -> None:
        self.told += len(messages)

    def figures(self) -> dict[str, Any]:
        mine = [run.flow_run.instances[name] for run in self.runs.values() for name in run.mine]
        latency = [sum(counts) for counts in zip(*(instance.counters.latency.counts for instance in mine), strict=True)]
        shed = sum(instance.delivery.shed for instance in mine)
        return {**super().figures(), "told": self.told, "at": time.monotonic(), "latency": latency, "shed": shed}


@dataclass(slots=True)
class Feed:
    """What one source is given."""

    source: Instance
    share: Sequence[Any]
    """The trace's messages of its devices, which come over and over."""
    part: float
    """Which part of the trace that is."""
    given: int = 0
    began: float = 0.0

    def room(self) -> Iterator[RawBatch]:
        """As much as waits in front of it at most."""
        while self.source.queue.rows < AHEAD_ROWS:
            yield self._next(BATCH_ROWS, time.monotonic())

    def due(self, rate: float) -> Iterator[RawBatch]:
        """What is due by now of `rate` rows per second, which is that of all sources together."""
        mine = rate * self.part
        self.began = self.began or time.monotonic()
        while (rows := int((time.monotonic() - self.began) * mine) - self.given) >= BATCH_ROWS:
            yield self._next(min(rows, BATCH_ROWS), self.began + self.given / mine)

    def _next(self, rows: int, arrival: float) -> RawBatch:
        part = [self.share[(self.given + n) % len(self.share)] for n in range(rows)]
        self.given += rows
        size = sum(len(m.payload) for m in part)
        return RawBatch([m.topic for m in part], [m.payload for m in part], arrival, time.time(), size)


def _share(template: Any, copies: int, number: int) -> tuple[Sequence[Any], float]:
    trace, _ = messages()
    copy_of = CopiesByTopic(template, copies)
    mine = [m for m in trace if copies == 1 or copy_of[m.topic] == number]
    return mine, len(mine) / len(trace)


if __name__ == "__main__":
    link, activity = map(int, sys.argv[1:])
    FeedingSlot(UnixLink(socket.socket(fileno=link)), REGISTRY, SystemClock(), Activity(activity)).serve()
