"""A gateway that is stopped in good order has published what it has committed the input of."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import Broker
from tests.integration.rig import Rig
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
            assert gateway.terminate() == 0
            assert "were not acknowledged by the broker" not in gateway.text()
            gateway.start_ready()
        publisher.join()
        wait_until(lambda: len(came) == MESSAGES, f"all of {MESSAGES} messages", 60.0)
        assert came.total() == MESSAGES, "nothing comes twice"
        assert gateway.status()["drops"] == []
    finally:
        listener.disconnect()
        listener.loop_stop()
        rig.close()
