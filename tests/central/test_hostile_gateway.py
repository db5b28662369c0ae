"""A gateway that means harm beside an honest one, at the collector as a process with a real broker: whatever it sends,
the honest one hears of its results within 2 s. These are seconds of the collector's CPU time, which does not depend on
what else the machine does; the seconds by the clock are printed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgpack
import paho.mqtt.client as mqtt
import psutil
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from edgert.core.compression import compressed
from edgert.core.results.result_schema import row_columns
from edgert.core.results.results import pack_result, results_topic
from tests.brokers import Broker
from tests.central.collector_rig import FLEET, Outbox, Start, resend
from tests.central.results_examples import FLOW, SCHEMA, Gateway, contribution
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
WITHIN_S = 2.0
MOST_MB = 256
"""That the collector may grow by. Six bombs took 9 GB."""
LOOKS_S = 5.0
"""So long the honest gateway sends while the other one is at work."""


def epochs_with_new_windows() -> Iterator[tuple[str, bytes]]:
    """Each would make a landing table of its own."""
    for n in range(120):
        g = Gateway("g666", (n + 1) << 32, dataclasses.replace(SCHEMA, window_s=61.0 + n))
        yield FLOW, pack_result(g.open())


def refused_between_good_ones() -> Iterator[tuple[str, bytes]]:
    """Each batch goes to another table than the one before, so that all of them make commits."""
    g = Gateway("g666")
    yield FLOW, pack_result(g.open())
    for n in range(1_000):
        yield FLOW, pack_result(g.rows(contribution(n % 7, "a", 1.0)))
        yield FLOW, pack_result(g.rows(contribution(n % 7, "a", 1.0), columns=("nonsense",)))


def epochs_never_opened() -> Iterator[tuple[str, bytes]]:
    for n in range(5_000):
        yield FLOW, pack_result(Gateway("g666", (n + 1) << 32).rows(contribution(0, "a", 1.0)))


def flows_without_end() -> Iterator[tuple[str, bytes]]:
    for n in range(1_200):
        g = Gateway("g666", flow=f"f{n}")
        yield g.flow, pack_result(g.open())


def bad_rows() -> Iterator[tuple[str, bytes]]:
    """Thousands of batches, each with 100 rows for quarantine."""
    g = Gateway("g666")
    yield FLOW, pack_result(g.open())
    body = {"v": 1, "kind": "rows", "columns": list(row_columns(SCHEMA)), "rows": [0] * 99}
    for _ in range(2_000):
        yield FLOW, msgpack.packb({**body, **g.number(0)})


def bombs() -> Iterator[tuple[str, bytes]]:
    """A few hundred bytes each: a million rows that are none."""
    g = Gateway("g666")
    yield FLOW, pack_result(g.open())
    for row in (None, 0) * 10:
        body = {"v": 1, "kind": "rows", "columns": list(row_columns(SCHEMA)), "rows": [row] * 1_000_000}
        payload = compressed(msgpack.packb({**body, **g.number(0)}))
        assert len(payload) < 1_000
        yield FLOW, payload


def slowest(outbox: Outbox, gateway: Gateway, collector: psutil.Process) -> tuple[float, float]:
    """The longest time until an acknowledgement, of results that are sent one after the other: in seconds of the
    collector's CPU, and by the clock."""
    waits: list[float] = []
    work: list[float] = []
    until = time.monotonic() + LOOKS_S
    while time.monotonic() < until:
        outbox.keep(gateway.rows(contribution(len(waits) % 7, "a", 1.0)))
        begun = outbox.sent = time.monotonic()
        before = cpu_s(collector)
        outbox.send()
        wait_until(lambda: resend(outbox), "an acknowledgement", 60)
        waits.append(time.monotonic() - begun)
        work.append(cpu_s(collector) - before)
    return max(work), max(waits)


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def peak_bytes(process: psutil.Process) -> int:
    """The most memory that it ever had."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


@pytest.mark.parametrize(
    "attack",
    [epochs_with_new_windows, refused_between_good_ones, epochs_never_opened, flows_without_end, bad_rows, bombs],
)
def test_an_honest_gateway_hears_within_two_seconds_whatever_another_one_sends(
    mosquitto: Callable[..., Broker], start: Start, attack: Callable[[], Iterator[tuple[str, bytes]]]
) -> None:
    port = mosquitto().port
    collector = psutil.Process(start(port).pid)
    outbox, honest = Outbox(port), Gateway("g1")
    wait_until(lambda: bool(outbox.status) and outbox.status[-1]["online"], "the collector", 30)
    outbox.hello()
    outbox.keep(honest.open())
    outbox.send()
    wait_until(lambda: resend(outbox), "the first acknowledgement", 30)
    hostile = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv311)
    hostile.connect("127.0.0.1", port)
    hostile.loop_start()
    before = collector.memory_info().rss
    sent = [hostile.publish(results_topic(FLEET, "g666", flow), payload, qos=1) for flow, payload in attack()]
    sent[-1].wait_for_publish(30)
    work, waited = slowest(outbox, honest, collector)
    grown = (peak_bytes(collector) - before) >> 20
    hostile.disconnect()
    hostile.loop_stop()
    outbox.close()
    print(f"{attack.__name__}: the slowest acknowledgement after {work:.2f} s of CPU, {waited:.2f} s by the clock; "
          f"grown by {grown} MB at most")  # fmt: skip
    assert work < WITHIN_S
    assert grown < MOST_MB
