"""`python -m benchmarks.outage.gateway`: a gateway's database after an outage, then its uplink beside new results.

The database and the uplink are the product's; what stands for the flow is rows made beforehand. Says (JSON) what waits,
starts to send at the first line that it reads, and says what became of it when all has landed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks.outage.rows import COLUMNS, EPOCH, FLEET, FLOW, GATEWAY, RATE, SCHEMA, Rows
from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.compression import expanded_size
from edgert.core.results.results import results_topic
from edgert.core.settings.gateway import Central
from edgert.core.system_clock import SystemClock
from edgert.mqtt.clients.control_plane import ControlConnection
from edgert.store.database import Database
from edgert.store.state.records import StoredFlow
from gateway.uplink.uplink import Uplink

INTERVAL_S: Final = 5
"""Seconds of rows in a batch of the backlog: the default interval of checkpoints."""
LIVE_S: Final = 1.0
"""Seconds between two commits of new results, so that there are enough of them for a p95."""
SAMPLES: Final = 30
"""New results are timed for so many commits at least."""
SAMPLE_BATCHES: Final = 500


def commit(rows: list[list[Any]]) -> Checkpoint:
    return Checkpoint(FLOW, Position(), [], b"", COLUMNS, rows)


def fill(database: Database, rows: Rows, hours: float) -> dict[str, Any]:
    """An outage's results, through the database's own checkpoints; what waits."""
    database.put_flow(StoredFlow(FLOW, {}, 1, "mqtt", False, EPOCH, Position()), SCHEMA, None, {}, 1)
    for _ in range(int(hours * 3600 / INTERVAL_S)):
        database.commit([commit(rows.seconds(INTERVAL_S))], {}, 1)
    sample = [e.payload for e in database.outbox(FLOW, EPOCH, 0, 1, SAMPLE_BATCHES)]
    size = database.outbox_size
    return {
        "batches": size.batches, "rows": size.rows, "bytes": size.bytes, "sample_rows": len(sample) * INTERVAL_S * RATE,
        "sample_bytes": sum(map(len, sample)), "sample_plain_bytes": sum(map(expanded_size, sample)),
    }  # fmt: skip


class Gateway:
    """What of a gateway daemon takes part: store thread, uplink, connection, and someone who commits."""

    def __init__(self, database: Database, port: int) -> None:
        self.database = database
        self.live: list[tuple[int, int, float]] = []
        """(stream, sequence, wall time of the commit's end) of new results."""
        self.curve: list[tuple[float, int]] = []
        """(seconds since the start, batches that wait)."""
        self.store_thread = ThreadPoolExecutor(1)
        self.loop = asyncio.get_running_loop()
        self.uplink = Uplink(FLEET, GATEWAY, database, SystemClock(), self.store, self.publish)
        self.link = ControlConnection(
            Central(port=port), f"edgert-{GATEWAY}-central", subscriptions=[(self.uplink.acks_topic, 1)],
            on_message=lambda topic, payload, request: self.on_loop(lambda: self.acknowledged(payload)),
            on_retained=lambda topic, payload, request: None,
            on_connected=lambda: self.on_loop(self.uplink.connected),
            on_disconnected=lambda reason: self.on_loop(self.uplink.disconnected),
        )  # fmt: skip
        self.acks: set[asyncio.Task[None]] = set()

    async def store(self, call: Callable[[], Any]) -> Any:
        return await self.loop.run_in_executor(self.store_thread, call)

    def publish(self, topic: str, payload: bytes) -> bool:
        assert topic == results_topic(FLEET, GATEWAY, FLOW)
        return self.link.publish(topic, payload)

    def on_loop(self, call: Callable[[], None]) -> None:
        self.loop.call_soon_threadsafe(call)

    def acknowledged(self, payload: bytes) -> None:
        task = asyncio.create_task(self.uplink.acknowledged_untrusted(payload))
        self.acks.add(task)
        task.add_done_callback(self.acks.discard)

    async def commits(self, rows: Rows) -> None:
        """New results, once a second, until cancelled."""
        due = time.monotonic()
        while True:
            due += LIVE_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            new = rows.seconds(round(LIVE_S))
            await self.store(partial(self.database.commit, [commit(new)], {}, 1))
            ended = time.time()
            self.uplink.committed()
            last = await self.store(lambda: self.database.last_sequences(FLOW, EPOCH))
            self.live.append((max(last), last[max(last)], ended))

    async def run(self, rows: Rows) -> dict[str, Any]:
        started = time.monotonic()
        uplink = asyncio.create_task(self.uplink.run())
        commits = asyncio.create_task(self.commits(rows))
        self.link.start()
        caught_up = 0.0
        while not caught_up or sum(stream > 0 for stream, _, _ in self.live) < SAMPLES:
            await asyncio.sleep(0.1)
            waiting = await self.store(self.database.outbox_streams)
            self.curve.append((time.monotonic() - started, self.database.outbox_size.batches))
            if not caught_up and not any(stream == 0 for (_, _, stream), _ in waiting):
                caught_up = time.monotonic() - started
        commits.cancel()
        while self.database.outbox_size.batches:  # noqa: ASYNC110 - nobody says when the database has emptied it
            await asyncio.sleep(0.05)
        uplink.cancel()
        await asyncio.to_thread(self.link.stop)
        self.store_thread.shutdown()
        return {
            "caught_up_s": caught_up, "live": self.live, "curve": self.curve[:: max(1, len(self.curve) // 300)],
            "rows": len(self.live) * round(LIVE_S) * RATE, "sent_bytes": self.uplink.status.sent_bytes,
        }  # fmt: skip


async def serve(database: Database, port: int, rows: Rows) -> dict[str, Any]:
    return await Gateway(database, port).run(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--hours", type=float, required=True)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    database, rows = Database(options.data / "gateway.db", GATEWAY), Rows(seed=1)
    print(json.dumps(fill(database, rows, options.hours)), flush=True)
    sys.stdin.readline()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        told = runner.run(serve(database, options.port, rows))
    print(json.dumps(told), flush=True)
    database.close()


if __name__ == "__main__":
    main()
