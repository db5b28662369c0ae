"""A broker whose queue for us overflows: what it dropped is seen, counted and said, also after the gateway was away."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import Broker
from tests.integration.rig import Gateway, Rig
from tests.integration.worlds import document, message

pytestmark = pytest.mark.integration

TOPIC = "$SYS/broker/publish/messages/dropped"
QUEUED, SENT = 5, 50


@pytest.fixture
def tight(tmp_path: Path, mosquitto: Callable[..., Broker]) -> Iterator[Rig]:
    """Its broker queues next to nothing."""
    settings = f"sys_interval 1\nmax_queued_messages {QUEUED}\nmax_inflight_messages 0"
    made = Rig(tmp_path, mosquitto(persistence=True, settings=settings))
    yield made
    made.close()


def seen(gateway: Gateway) -> int:
    status = gateway.wait(lambda s: s["ingest"]["broker_dropped"] is not None, "the broker's count")
    dropped: int = status["ingest"]["broker_dropped"]
    return dropped


def reasons(status: dict[str, Any]) -> dict[str, int]:
    return {d["reason"]: d["rows"] for d in status["drops"]}


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_what_the_broker_dropped_while_the_gateway_was_away_is_counted(tight: Rig, protocol: str, end: str) -> None:
    gateway = tight.gateway(sensors={"protocol": protocol})
    gateway.start_ready()
    assert tight.deploy(gateway, document("f", retained=False))["accepted"]
    seen(gateway)
    tight.publish([message("before")])
    gateway.wait(lambda s: s["ingest"]["messages"] == 1 and not s["ingest"]["unacknowledged"], "the first message")
    getattr(gateway, end)()
    tight.publish([message("meanwhile")] * SENT)
    gateway.start_ready()
    status = gateway.wait(lambda s: s["ingest"]["broker_dropped"] == SENT - QUEUED, "what was dropped")
    assert status["ingest"]["broker_drops_unseen"] == ""
    assert reasons(status) == {"by the sensors' broker, of any client": SENT - QUEUED}
    status = gateway.wait(lambda s: s["ingest"]["messages"] >= QUEUED, "what was left")
    assert status["ingest"]["messages"] == QUEUED, "the broker's own messages are none of the sensors'"
    assert gateway.text().count("messages of some of its clients' queues") == 1
    tight.publish([message("after")])
    gateway.wait(lambda s: s["ingest"]["messages"] > QUEUED and not s["ingest"]["unacknowledged"], "the next commit")
    gateway.kill()
    gateway.start_ready()
    assert seen(gateway) == 0, "nothing is counted twice"


def test_a_broker_that_started_anew_counts_from_nothing(tight: Rig) -> None:
    gateway = tight.gateway()
    gateway.start_ready()
    assert tight.deploy(gateway, document("f", retained=False))["accepted"]
    seen(gateway)
    gateway.terminate()
    tight.publish([message("a")] * SENT)
    gateway.start_ready()
    gateway.wait(lambda s: s["ingest"]["broker_dropped"] == SENT - QUEUED, "what was dropped")
    gateway.wait(lambda s: s["ingest"]["messages"] == QUEUED and not s["ingest"]["unacknowledged"], "what was left")
    gateway.terminate()
    tight.broker.restart()
    tight.publish([message("b")] * (QUEUED + 7))
    gateway.start_ready()
    gateway.wait(lambda s: s["ingest"]["broker_dropped"] == 7, "what the new one dropped")


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_a_flow_that_reads_what_the_broker_says_of_itself_gets_it(rig: Rig, protocol: str) -> None:
    gateway = rig.gateway(sensors={"protocol": protocol})
    gateway.start_ready()
    seen(gateway)
    plain = document("own", retained=True, qos=0)
    plain["operators"]["in"]["topic"] = "$SYS/broker/publish/{source}/dropped"
    assert rig.deploy(gateway, plain)["accepted"]
    taken = gateway.wait(
        lambda s: s["flows"] and s["flows"][0]["operators"][0]["rows_in"], "what the broker has retained"
    )
    assert taken["ingest"]["broker_dropped"] == 0
    assert taken["ingest"]["error"] == ""


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_a_broker_that_says_nothing_of_itself_is_no_error(
    tmp_path: Path, mosquitto: Callable[..., Broker], protocol: str
) -> None:
    """Mosquitto grants the subscription and sends nothing of what the list forbids."""
    rules = tmp_path / "rules"
    rules.write_text("topic readwrite #\n")
    rig = Rig(tmp_path, mosquitto(settings=f"sys_interval 1\nacl_file {rules}"))
    try:
        gateway = rig.gateway(sensors={"protocol": protocol})
        gateway.start_ready()
        assert rig.deploy(gateway, document("f", retained=False))["accepted"]
        time_before = gateway.now()["uptime_s"]
        rig.publish([("city/a/sense", json.dumps({"time": float(int(time.time())), "v": 1.0}).encode())])
        status = gateway.wait(
            lambda s: s["ingest"]["messages"] == 1 and s["uptime_s"] > time_before + 2, "some intervals"
        )
        assert status["ingest"]["broker_dropped"] is None
        assert status["ingest"]["broker_drops_unseen"] == f"nothing has come on {TOPIC} yet"
        assert (status["ingest"]["error"], status["drops"]) == ("", [])
    finally:
        rig.close()
