"""A broker that sends few messages before some are acknowledged holds nothing up until the next checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.integration.rig import Rig
from tests.integration.test_retained import document, message

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(("size", "met"), [(20, range(20, 26)), (50, range(50, 101)), (0, range(1))])
def test_what_waits_at_the_broker_comes_soon_and_the_window_is_said(
    tmp_path: Path, mosquitto: Callable[..., Broker], size: int, met: range
) -> None:
    """In MQTT 3.1.1. Mosquitto goes beyond what it is told."""
    rig = Rig(tmp_path, mosquitto(settings=f"max_inflight_messages {size}"))
    try:
        gateway = rig.gateway(sensors={"protocol": "3.1.1"})
        gateway.start_ready()
        flow = {**document("f", retained=False), "checkpoint": {"interval_s": 30.0}}
        assert rig.deploy(gateway, flow)["accepted"]
        sent = rig.publish([message(str(n)) for n in range(300)], rate=100.0)
        status = gateway.wait(lambda s: s["ingest"]["messages"] == sent, "all of them")
        assert status["ingest"]["window"] in met
        asked = status["ingest"]["window_checkpoints"]
        assert sent / met[-1] <= asked <= 3 * sent / size + 10 if size else asked <= 10
        said = gateway.text().count("messages before some are acknowledged, so there is a checkpoint")
        assert said == bool(size)
    finally:
        rig.close()
