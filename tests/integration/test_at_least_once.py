"""An at-least-once flow as real processes: results land long before a checkpoint covers them, none is lost, and what a
kill repeats is foreseen."""

from __future__ import annotations

import urllib.request
from collections import Counter
from typing import Any

import pytest

from tests.integration import truth
from tests.integration.rig import Gateway, Rig
from tests.waiting import wait_until

pytestmark = pytest.mark.integration


def document(interval_s: float) -> dict[str, Any]:
    return {**truth.document(interval_s=interval_s), "delivery": "at-least-once"}


def wanted(packs: list[dict[str, Any]]) -> dict[tuple[float, str], int]:
    return {key: row["n"] for key, row in truth.expected(packs).items()}


def repeated(gateway: Gateway) -> int:
    status = gateway.wait(lambda s: s["flows"], "the flow")
    return int(status["flows"][0]["rows_repeated"])


def landed(rig: Rig) -> dict[tuple[float, str], int]:
    log = rig.tables / "landing" / "city-air" / "_delta_log"
    return rig.counts("city-air") if any(log.glob("*.json")) else {}


@pytest.mark.long
@pytest.mark.parametrize("slots", [0, 2])
def test_results_land_long_before_the_checkpoint_and_a_kill_loses_none(rig: Rig, slots: int) -> None:
    packs = truth.packs()
    gateway = rig.gateway(pool={"slots": slots}, sensors={"window": 65_535})  # no checkpoint to find it out
    collector = rig.collector()
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, document(interval_s=3600.0))["accepted"]
    rig.publish(truth.as_messages(packs[:500]))
    wait_until(lambda: len(landed(rig)) > 20, "results in the table")
    status = gateway.wait(lambda s: s["ingest"]["unacknowledged"] == 500, "all messages")
    assert status["checkpoint"]["commits"] == 0, "no checkpoint covers them"
    early = landed(rig)
    assert all(n <= wanted(packs)[key] for key, n in early.items())
    gateway.kill()
    gateway.start_ready()
    assert repeated(gateway) >= len(early)
    rig.publish(truth.as_messages(packs[500:]))
    gateway.wait(lambda s: s["ingest"]["unacknowledged"] == 1000, "all input")
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.port}/metrics", timeout=60) as answer:
        assert f'edgert_flow_repeated_rows_total{{flow="city-air"}} {repeated(gateway)}.0' in answer.read().decode()
    assert rig.tell(gateway, "flows/city-air", b"", "flows/city-air/state")["accepted"]
    rig.drained(gateway)
    more = Counter(landed(rig))
    more.subtract(wanted(packs))
    assert min(more.values()) == 0, "nothing is lost"
    assert {key for key, n in early.items() if more[key] < n} == set(), "what had landed is there twice"
    assert gateway.terminate() == 0


@pytest.mark.long
def test_kills_of_gateway_and_collector_lose_nothing(rig: Rig) -> None:
    packs = truth.packs()
    gateway, collector = rig.gateway(), rig.collector()
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, document(interval_s=2.0))["accepted"]
    for at in range(0, 1000, 500):
        rig.publish(truth.as_messages(packs[at : at + 500]))
        before = len(landed(rig))
        wait_until(lambda: len(landed(rig)) > before, "more results in the table")  # noqa: B023
        gateway.kill()
        collector.kill()
        collector.start()
        gateway.start_ready()
    rig.finish(gateway, "city-air", 0)
    more = Counter(landed(rig))
    more.subtract(wanted(packs))
    assert min(more.values()) == 0, "nothing is lost"
    assert gateway.terminate() == 0


def test_without_a_kill_each_result_lands_once(rig: Rig) -> None:
    packs = truth.packs()
    gateway, collector = rig.gateway(), rig.collector()
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, document(interval_s=0.5))["accepted"]
    rig.publish(truth.as_messages(packs), rate=400.0)
    gateway.wait(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements")
    assert gateway.terminate() == 0
    gateway.start_ready()
    rig.finish(gateway, "city-air", 0)
    assert landed(rig) == wanted(packs)
    assert "made again" not in gateway.text()
