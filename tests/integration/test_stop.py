"""A gateway that is stopped in good order has published what it has committed the input of."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import Broker
from tests.integration import patient, truth
from tests.integration.rig import Rig
from tests.integration.worlds import package, with_waiting
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

ECHO: dict[str, Any] = {
    "name": "echo",
    "checkpoint": {"interval_s": 0.5},
    "operators": {
        "readings": {"type": "mqtt_source", "topic": "s/{source}"},
        "out": {"type": "publish", "input": "readings", "topic": "out/{source}"},
    },
}
MESSAGES = 9_000


@pytest.mark.parametrize("slots", [0, 2])
def test_what_waits_for_the_brokers_small_window_is_published_before_the_end(
    tmp_path: Path, mosquitto: Callable[..., Broker], slots: int
) -> None:
    rig = Rig(tmp_path, mosquitto(persistence=True, settings="max_queued_messages 0\nmax_inflight_messages 20"))
    came: Counter[int] = Counter()
    listener = rig.client()
    try:
        gateway = rig.gateway(pool={"slots": slots})
        gateway.arguments[gateway.arguments.index("gateway")] = patient.__name__
        gateway.start_ready()
        assert rig.deploy(gateway, ECHO)["accepted"]
        listener.on_message = lambda _client, _data, message: came.update([json.loads(message.payload)["x"]])
        subscribed: list[Any] = []
        listener.on_subscribe = lambda _client, _data, _mid, reasons, _properties: subscribed.extend(reasons)
        listener.subscribe("out/#", 1)
        wait_until(lambda: subscribed, "the subscription")
        messages = ((f"s/d{n % 10}", b'{"time": %d, "x": %d}' % (1_700_000_000 + n, n)) for n in range(MESSAGES))
        publisher = rig.publishing(messages, rate=2_500.0)
        for part in (1, 2):
            wait_until(lambda: len(came) > part * MESSAGES // 4, "a part of it")  # noqa: B023
            assert gateway.terminate(3 * patient.END_S) == 0
            assert "were not acknowledged by the broker" not in gateway.text()
            gateway.start_ready()
        publisher.join()
        wait_until(lambda: len(came) == MESSAGES, f"all of {MESSAGES} messages")
        assert came.total() == MESSAGES, "nothing comes twice"
        assert gateway.now()["drops"] == []
    finally:
        listener.disconnect()
        listener.loop_stop()
        rig.close()


@pytest.mark.parametrize("slots", [0, 2])
def test_nothing_is_lost_where_a_checkpoint_waits_for_a_turn_in_that_moment(rig: Rig, slots: int) -> None:
    """Neither of the flow that it waits for, whether the turn ends in time or not, nor of one beside it."""
    packs, there = truth.packs()[:400], rig.folder / "there"
    gateway, collector = rig.gateway(pool={"slots": slots}), rig.collector()
    gateway.env = package(rig.folder / "installed")
    there.touch()
    collector.start()
    gateway.start_ready()
    for document in (truth.document("free", size_s=3600.0, interval_s=0.5), with_waiting(there)):
        assert rig.deploy(gateway, document)["accepted"]
    for stop in (1, 2):
        first, second = packs[200 * stop - 200 : 200 * stop - 100], packs[200 * stop - 100 : 200 * stop]
        rig.publish(truth.as_messages(first))
        wait_until(lambda: gateway.text().count("flow stuck has no checkpoint") == stop, "one that waits")  # noqa: B023
        came = gateway.now()["ingest"]["messages"]
        rig.publish(truth.as_messages(second))
        gateway.wait(lambda s: s["ingest"]["messages"] >= came + 100, "what comes meanwhile")  # noqa: B023
        began = time.monotonic()
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGTERM)
        if stop == 2:
            wait_until(lambda: gateway.text().count("gateway.daemon: stopping") == 2, "the stop")
            there.unlink()
        assert gateway.process.wait(60.0) == 0
        assert time.monotonic() - began < 40.0
        gateway.start_ready()
    for flow in ("stuck", "free"):
        rig.finish(gateway, flow, 0)
    wanted = Counter({key: row["n"] for key, row in truth.expected(packs, 3600.0).items()})
    assert rig.counts("free") == wanted
    assert rig.counts("stuck") == wanted
    assert gateway.now()["drops"] == []


def test_the_end_waits_for_no_thread_that_waits_for_the_system(rig: Rig) -> None:
    """For a name server, or a file on a server that is away; here for somebody who writes into a pipe."""
    pipe = rig.folder / "flow.toml"
    os.mkfifo(pipe)
    gateway = rig.gateway(flows={"files": [str(pipe)]})
    gateway.start()
    wait_until(lambda: "web page on" in gateway.text(), "the start")
    began = time.monotonic()
    assert gateway.terminate() == 0
    assert time.monotonic() - began < 40.0
