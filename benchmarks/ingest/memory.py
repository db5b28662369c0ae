"""The same flow without sockets: MQTT bytes from memory through decoder, ingest and pool. A process of its own."""

from __future__ import annotations

import argparse
import json
import time

from benchmarks.ingest.flows import measured
from benchmarks.ingest.load import Packets
from edgert.core.checkpoint.position import Position
from edgert.core.settings.gateway import GatewaySettings
from edgert.core.system_clock import SystemClock
from edgert.flow.document import from_plain
from edgert.mqtt.packets.decode import Decoder
from edgert.mqtt.packets.packets import V311, Packet
from edgert.operators.registry import with_installed
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.pool.pool import Pool
from edgert.scheduling.consumption import at_most
from gateway.hosts.in_process import InProcess
from gateway.ingest.inbox import Reader
from gateway.ingest.ingest import Ingest
from gateway.ingest.subscriptions import SubscribedSource

AHEAD = 4
"""Reads that may wait in the queue: the loop must not be ahead of the worker by more than the queue's budget."""
LOOK_S = 0.001


async def _nothing(text: str = "") -> None:
    """There is no database here."""


class Feed:
    """A gateway's way of a row, from the read to the window."""

    def __init__(self) -> None:
        settings = GatewaySettings()
        clock = SystemClock()
        self.pool = Pool(clock, consumption=at_most(settings.pool.consumption_rows))
        self.ingest = Ingest(
            settings.sensors, "bench", InProcess(self.pool, clock), clock,
            forget_session=_nothing, wants_checkpoint=lambda: None, save_subscriptions=_nothing,
        )  # fmt: skip
        registry, _ = with_installed()
        self.run = FlowRun(from_plain(measured(0), registry), registry, 1, 1, Progress(Position()))
        self.pool.add(self.run.all)
        readers = [(p.parameters["topic"].filter, Reader(self.run.progress, i)) for p, (i,) in self.run.sources()]
        sources = [SubscribedSource(self.run.flow.name, topic_filter, 0, reader) for topic_filter, reader in readers]
        with self.ingest.swap((), sources):
            pass
        self.pool.start()

    def feed(self, packets: Packets, messages: int, per_read: int) -> float:
        """Feeds so many messages, `per_read` to a read; CPU seconds until the windows have them."""
        decoder = Decoder(V311)
        spent = 0.0
        for first in range(0, messages, len(packets)):
            last = min(len(packets), messages - first)
            now = time.time()
            reads = [bytes(packets.take(at, min(last, at + per_read), now)) for at in range(0, last, per_read)]
            before = time.process_time()
            self._round(decoder, reads)
            spent += time.process_time() - before
        return spent

    def _round(self, decoder: Decoder, reads: list[bytes]) -> None:
        for at, data in enumerate(reads, 1):
            out: list[Packet] = []
            decoder.feed_untrusted(data, out)
            for packet in out:
                if isinstance(packet, list):
                    self.ingest.feed(packet)
            if at % AHEAD == 0:
                self._wait()
        self._wait()

    def _wait(self) -> None:
        """Until the pool has done all. It looks now and then: `Pool.wait_empty` would be woken by every turn."""
        while any(instance.queue.rows or instance.schedule.running for instance in self.run.all):
            time.sleep(LOOK_S)


def main() -> None:
    """Feeds, and says as JSON what it cost."""
    parser = argparse.ArgumentParser("memory")
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--per-read", type=int, required=True)
    arguments = parser.parse_args()
    feed, packets = Feed(), Packets(0)
    feed.feed(packets, 5_000, arguments.per_read)
    rows = feed.run.all[0].counters.rows_in
    spent = feed.feed(packets, arguments.messages, arguments.per_read)
    rows = feed.run.all[0].counters.rows_in - rows
    print(json.dumps({"cpu_us": spent / arguments.messages * 1e6, "fed": arguments.messages, "rows": rows}), flush=True)


if __name__ == "__main__":
    main()
