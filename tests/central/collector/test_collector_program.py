"""`edgert-collector` as a process, with real brokers: killed at any point, each result lands exactly once."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from benchmarks.ports import free_port
from edgert.central.tables.query import query
from tests.brokers import Broker
from tests.central.collector_rig import Outbox, Start, resend
from tests.central.results_examples import FLOW, Gateway, contribution
from tests.waiting import wait_until

pytestmark = pytest.mark.integration


def landed(root: Path) -> list[int]:
    """The sequences in the landing table, sorted."""
    uri = str(root / "tables" / "landing" / FLOW)
    if not DeltaTable.is_deltatable(uri):
        return []
    return sorted(row["sequence"] for row in query(DeltaTable(uri), ["sequence"]))


def test_killed_in_mid_write_again_and_again_each_result_lands_once(
    mosquitto: Callable[..., Broker], start: Start, tmp_path: Path
) -> None:
    rng = random.Random(3)
    outbox = Outbox(port := mosquitto().port)
    g = Gateway("g1")
    log = tmp_path / "tables" / "landing" / FLOW / "_delta_log"
    outbox.keep(g.open())
    for _ in range(4):
        collector = start(port, EDGERT_COLLECTOR_GATHER_S="0.01")
        wait_until(lambda: bool(outbox.status) and outbox.status[-1]["online"], "the collector")
        for i in range(150):
            outbox.keep(g.rows(*[contribution(i % 7, str(k), 1.0) for k in range(20)]))
        before = len(list(log.glob("*.json")))
        outbox.send(rng)
        # One commit is made, the next ones are under way.
        wait_until(lambda b=before: len(list(log.glob("*.json"))) > b, "a commit")  # type: ignore[misc]
        collector.send_signal(signal.SIGKILL)
        collector.wait()
        outbox.status.clear()
    start(port)
    wait_until(lambda: resend(outbox), "all acknowledgements", progress=lambda: len(outbox.waiting))
    rows = query(DeltaTable(str(log.parent)), ["sequence", "source"])
    pairs = [(r["sequence"], r["source"]) for r in rows]
    assert len(pairs) == len(set(pairs)) == 1 + 600 * 20
    outbox.close()


def test_broker_that_is_away_at_start_and_goes_away_later(
    mosquitto: Callable[..., Broker], start: Start, tmp_path: Path
) -> None:
    broker = mosquitto(start=False)
    collector = start(broker.port)
    wait_until(lambda: "no connection to" in (tmp_path / "collector.log").read_text(), "the first failure")
    broker.start()
    outbox = Outbox(broker.port)
    g = Gateway("g1")
    outbox.keep(g.open())
    wait_until(lambda: resend(outbox), "the first acknowledgement")
    broker.kill()
    outbox.keep(g.rows(contribution(0, "a", 1.0)))
    broker.start()
    wait_until(lambda: resend(outbox), "the second acknowledgement")
    assert landed(tmp_path) == [1, 2]
    assert collector.poll() is None
    outbox.close()


def test_sigterm_ends_it_in_order_and_a_later_gateway_finds_the_acknowledgement(
    mosquitto: Callable[..., Broker], start: Start, tmp_path: Path
) -> None:
    broker = mosquitto()
    collector = start(broker.port)
    outbox = Outbox(broker.port)
    outbox.keep(Gateway("g1").open())
    wait_until(lambda: resend(outbox), "the acknowledgement")
    collector.send_signal(signal.SIGTERM)
    assert collector.wait(60.0) == 0
    wait_until(lambda: not outbox.status[-1]["online"], "the last status")
    assert outbox.status[-1]["commits"] == 1

    later = Outbox(broker.port)
    wait_until(lambda: bool(later.heard), "the retained acknowledgement")
    assert later.heard[0].acks == {(FLOW, 1 << 32, 0): 1}
    start(broker.port)
    later.heard.clear()
    wait_until(lambda: later.status and later.status[-1]["online"], "the second collector")
    later.hello()
    wait_until(lambda: any(a.answers == (FLOW,) for a in later.heard), "the answer to hello")
    assert later.heard[-1].acks == {(FLOW, 1 << 32, 0): 1}
    outbox.close()
    later.close()


def test_embedded_broker_of_the_demo_is_spoken_to_in_its_version(amqtt: Broker, start: Start, tmp_path: Path) -> None:
    start(amqtt.port)
    outbox = Outbox(amqtt.port)
    outbox.keep(Gateway("g1").open())
    wait_until(lambda: resend(outbox), "the acknowledgement")
    assert landed(tmp_path) == [1]
    outbox.close()


def test_settings_that_cannot_be_used_end_it_with_a_line(start: Start, tmp_path: Path) -> None:
    collector = start(free_port(), EDGERT_COLLECTOR_HOLD_S="-1")
    assert collector.wait(60.0) == 2
    assert "EDGERT_COLLECTOR_HOLD_S: expected a number from 0.1 to 600" in (tmp_path / "collector.log").read_text()
