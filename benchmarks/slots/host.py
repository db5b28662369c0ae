"""A daemon's side of slots that feed themselves: a process of its own, which says as JSON what they did."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from benchmarks.riotbench.flows import split
from benchmarks.slots.slot import RATE
from edgert.core.checkpoint.position import Position
from edgert.core.settings.gateway import Pool as PoolSettings
from edgert.core.system_clock import SystemClock
from edgert.flow.document import from_plain
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.latency import quantile_s
from gateway.hosts.slot_process import SlotProcess
from gateway.hosts.slots import Slots

STARTED_S = 60.0
REPORTED_S = 1.0
"""Slots report once a second."""


class FeedingProcess(SlotProcess):
    """Starts a slot that feeds itself."""

    module = "benchmarks.slots.slot"


class NoRecovery:
    """None is made here, and a slot that dies ends the measurement."""

    feeding = threading.Lock()

    async def store(self, call: Callable[[], Any], /) -> Any:
        return call()

    def read_checkpoint(self, flow: str) -> tuple[list[bytes], bytes]:
        return [], b""

    def last_checkpoint(self, flow: str) -> AbstractAsyncContextManager[tuple[list[bytes], bytes]]:
        raise RuntimeError("a slot died")

    def fail(self, run: FlowRun, why: str) -> None:
        print(why)


async def measure(application: str, slots: int, warm_up: float, seconds: float) -> dict[str, Any]:
    """Rows per second of all slots, the CPU that a row costs, how long it took, and what was shed."""

    host = Slots(
        PoolSettings(slots=slots), REGISTRY, SystemClock(),
        level="warning", send=lambda instance, messages: None, recovery=NoRecovery(),
        make_process=FeedingProcess,
    )  # fmt: skip
    run = FlowRun(from_plain(split(application, slots), REGISTRY), REGISTRY, 1, 1, Progress(Position()))
    await host.start()
    host.begin(run)
    async with asyncio.timeout(STARTED_S):
        while not all(slot.get("told") for slot in host.figures.slots()):  # noqa: ASYNC110 - it comes from another process
            await asyncio.sleep(0.1)
    await asyncio.sleep(warm_up)
    before = [dict(slot) for slot in host.figures.slots()]
    await asyncio.sleep(seconds + REPORTED_S)
    async with asyncio.timeout(STARTED_S):  # with more than it can bear a slot may come to its report late
        while not all(now["at"] > then["at"] for then, now in zip(before, host.figures.slots(), strict=True)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    after = host.figures.slots()
    await host.stop()
    rates, costs = [], []
    for then, now in zip(before, after, strict=True):
        rows = (now["told"] - then["told"]) / 2  # PRED gives two for each row
        rates.append(rows / (now["at"] - then["at"]))
        costs.append((now["cpu_s"] - then["cpu_s"]) / rows * 1e6)
    counts = zip(*(_passed(then, now) for then, now in zip(before, after, strict=True)), strict=True)
    p99 = quantile_s([sum(count) for count in counts], 0.99)
    return {
        "rates": rates,
        "cpu_us": sum(costs) / len(costs),
        "rss_mb": [now["rss_bytes"] / 1e6 for now in after],
        "p99_ms": p99 and p99 * 1e3,
        "shed": sum(now["shed"] - then["shed"] for then, now in zip(before, after, strict=True)),
    }


def _passed(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[int]:
    """Rows by how long they took, between two reports of a slot."""
    return [late - early for early, late in zip(then["latency"], now["latency"], strict=True)]


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser("host")
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--warm-up", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rate", type=float, help="rows per second, open-loop; without it as many as they take")
    given = parser.parse_args()
    if given.rate:
        os.environ[RATE] = str(given.rate)
    print(json.dumps(asyncio.run(measure("pred", given.slots, given.warm_up, given.seconds))), flush=True)


if __name__ == "__main__":
    main()
