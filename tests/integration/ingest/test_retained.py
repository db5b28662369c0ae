"""Messages that the broker has retained: each flow that wants them takes them once, whatever reconnects or restarts."""

from __future__ import annotations

import pytest

from tests.integration.rig import Gateway, Rig
from tests.integration.worlds import document, message
from tests.waiting import wait_until

pytestmark = pytest.mark.integration


def taken(gateway: Gateway) -> dict[str, int]:
    return {flow["name"]: flow["operators"][0]["rows_in"] for flow in gateway.now()["flows"]}


def settled(gateway: Gateway, rig: Rig) -> None:
    """All that the broker had for the gateway is in: a message that comes last has come."""
    before = gateway.wait(lambda s: s["ingest"]["connected"], "the connection")["ingest"]["messages"]
    rig.publish([message("live")])
    gateway.wait(lambda s: s["ingest"]["messages"] > before and not s["ingest"]["unacknowledged"], "the last message")


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_what_is_retained_is_counted_once(rig: Rig, protocol: str) -> None:
    rig.publish([message("kept")], retain=True)
    gateway, collector = rig.gateway(sensors={"protocol": protocol}), rig.collector()
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, document("plain", retained=False))["accepted"]
    settled(gateway, rig)
    assert rig.deploy(gateway, document("wants", retained=True))["accepted"]  # its filter is subscribed already
    wait_until(lambda: taken(gateway).get("wants") == 1, "the retained message")
    for restart in (gateway.terminate, gateway.kill):
        restart()
        gateway.start_ready()
        settled(gateway, rig)
    rig.broker.restart()
    settled(gateway, rig)
    assert rig.deploy(gateway, document("late", retained=True))["accepted"]
    wait_until(lambda: taken(gateway).get("late") == 1, "the retained message for the flow that came last")
    settled(gateway, rig)
    for flow in ("plain", "wants", "late"):
        rig.tell(gateway, f"flows/{flow}", b"", f"flows/{flow}/state")
    rig.drained(gateway)
    wait_until(lambda: all((rig.tables / "landing" / f).exists() for f in ("plain", "wants", "late")), "the tables")
    counts = {flow: {device: n for (_, device), n in rig.counts(flow).items()} for flow in ("plain", "wants", "late")}
    assert counts == {"plain": {"live": 5}, "wants": {"kept": 1, "live": 4}, "late": {"kept": 1, "live": 1}}


def test_a_flow_that_wants_more_of_a_filter_than_was_subscribed_gets_it(rig: Rig) -> None:
    """QoS 0 before, QoS 1 now: what comes while the gateway is away waits at the broker for the second flow."""
    gateway = rig.gateway()
    gateway.start_ready()
    assert rig.deploy(gateway, document("seldom", retained=False, qos=0))["accepted"]
    settled(gateway, rig)
    assert rig.deploy(gateway, document("sure", retained=False, qos=1))["accepted"]
    settled(gateway, rig)
    gateway.kill()
    rig.publish([message("meanwhile")] * 3)
    gateway.start_ready()
    wait_until(lambda: taken(gateway).get("sure") == 3, "what came meanwhile")
