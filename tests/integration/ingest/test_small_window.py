"""A broker that sends few messages before some are acknowledged holds nothing up until the next checkpoint."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.integration.rig import Gateway, Rig
from tests.integration.worlds import document, message
from tests.waiting import wait_until

pytestmark = pytest.mark.integration


MOST = 20_000
"""Messages. On a busy machine not every pause tells something."""


@pytest.mark.parametrize("size", [20, 50])
def test_what_waits_at_the_broker_comes_soon_and_the_window_is_said(
    tmp_path: Path, mosquitto: Callable[..., Broker], size: int
) -> None:
    """In MQTT 3.1.1. Mosquitto sends more while it reads acknowledgements: 105 for 50 was seen."""
    rig = Rig(tmp_path, mosquitto(settings=f"max_inflight_messages {size}"))
    try:
        gateway = started(rig)
        found = threading.Event()
        sent = itertools.count()
        sending = rig.publishing(
            (message(str(next(sent))) for _ in itertools.takewhile(lambda _: not found.is_set(), range(MOST))), 100.0
        )
        wait_until(lambda: said(gateway), "the window to be found", MOST / 100.0)
        found.set()
        sending.join(60.0)
        messages = next(sent)
        before = gateway.wait(lambda s: s["ingest"]["messages"] == messages, "all of them")["ingest"]
        assert size <= before["window"] <= 3 * size
        assert before["window_checkpoints"] <= 3 * messages / size + 10
        messages += rig.publish([message(str(n)) for n in range(300)], rate=100.0)
        after = gateway.wait(lambda s: s["ingest"]["messages"] == messages, "what comes later")["ingest"]
        asked = after["window_checkpoints"] - before["window_checkpoints"]
        assert 300 / (3 * size) <= asked <= 3 * 300 / size, "one for every half of it"
    finally:
        rig.close()


def test_one_without_a_bound_is_not_taken_for_one_with_a_small_window(
    tmp_path: Path, mosquitto: Callable[..., Broker]
) -> None:
    rig = Rig(tmp_path, mosquitto(settings="max_inflight_messages 0"))
    try:
        gateway = started(rig)
        messages = rig.publish([message(str(n)) for n in range(300)], rate=100.0)
        status = gateway.wait(lambda s: s["ingest"]["messages"] == messages, "all of them")
        assert status["ingest"]["window"] == 0
        assert status["ingest"]["window_checkpoints"] <= 10
        assert not said(gateway)
    finally:
        rig.close()


def started(rig: Rig) -> Gateway:
    gateway = rig.gateway(sensors={"protocol": "3.1.1"})
    gateway.start_ready()
    flow = {**document("f", retained=False), "checkpoint": {"interval_s": 5.0}}
    assert rig.deploy(gateway, flow)["accepted"]
    return gateway


def said(gateway: Gateway) -> bool:
    return "messages before some are acknowledged, so there is a checkpoint" in gateway.text()
