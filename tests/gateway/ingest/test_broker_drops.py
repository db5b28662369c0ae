"""What the sensors' broker says it dropped: how it is counted, kept and shown."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edgert.core.errors import StoreError
from edgert.core.settings.gateway import Gateway as GatewaySection
from edgert.core.settings.gateway import GatewaySettings, Sensors
from gateway.daemon import Daemon
from gateway.ingest.broker_drops import MOST_CUTS, QUIET_S, SAVE_S, BrokerDrops
from tests.gateway.whole_gateway import Gateway, document
from tests.waiting import in_loop

TOPIC = Sensors().drops_topic
BROKER = "127.0.0.1:1883"


def heard(*values: object, drops: BrokerDrops | None = None, now: float = 0.0) -> BrokerDrops:
    """One batch."""
    drops = drops or BrokerDrops(TOPIC, BROKER)
    drops.take_untrusted([v if isinstance(v, bytes) else str(v).encode() for v in values], now)
    return drops


# -- counting


def test_the_first_value_ever_is_where_counting_begins_and_what_it_grows_by_was_dropped() -> None:
    drops = heard(1_000)
    assert drops.dropped == 0
    assert heard(1_000, 1_045, drops=drops).dropped == 45
    assert heard(1_046, drops=drops).dropped == 46


def test_a_smaller_value_means_that_the_broker_started_anew() -> None:
    drops = heard(1_000)
    assert heard(0, drops=drops).dropped == 0
    assert heard(7, drops=drops).dropped == 7
    assert heard(2, drops=drops).dropped == 9


@pytest.mark.parametrize("bad", [b"", b"many", b"-3", b"1.5", b"0x10", b"\xff", b"9" * 5_000, "٣".encode()])
def test_what_is_no_count_is_said_once_counted_and_changes_nothing(
    bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    drops = heard(10, bad, bad, b" 12\n")
    assert (drops.dropped, drops.bad) == (2, 2)
    assert caplog.text.count("expected a count") == 1
    assert heard(bad).dropped is None, "nothing is known of a broker that says nothing that can be read"


def test_a_time_of_drops_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    drops = heard(0)
    for second in range(0, 3_600, 10):
        heard(second + 45, drops=drops, now=float(second))
    assert len(caplog.records) == 1
    assert "dropped 45 messages of some of its clients' queues" in caplog.text
    assert "max_queued_messages" in caplog.text
    heard(9_000, drops=drops, now=3_600 + QUIET_S)
    assert len(caplog.records) == 2


def test_why_the_drops_are_not_seen_is_known() -> None:
    assert "drops_topic is empty" in BrokerDrops("", BROKER).unseen
    assert BrokerDrops("", BROKER).source is None
    drops = BrokerDrops(TOPIC, BROKER)
    assert drops.unseen == f"nothing has come on {TOPIC} yet"
    drops.answered("not authorized (0x87)")
    assert drops.unseen == f"subscription to {TOPIC} refused: not authorized (0x87)"
    drops.answered("")
    assert heard(5, drops=drops).unseen == ""


def _asks(drops: BrokerDrops) -> bool:
    return drops.source is not None


def test_a_broker_that_hangs_up_when_it_is_asked_is_not_asked_for_ever() -> None:
    drops = BrokerDrops(TOPIC, BROKER)
    for _ in range(MOST_CUTS):
        assert not _asks(drops), "the flows' subscriptions go first"
        assert drops.may_be_asked()
        assert not drops.may_be_asked(), "once on a connection"
        assert _asks(drops)
        drops.asked()
        drops.disconnected()
    assert not drops.may_be_asked()
    assert drops.source is None
    assert "2 connections ended before" in drops.unseen
    assert drops.due(0.0)
    saved = drops.to_save()
    again = BrokerDrops(TOPIC, BROKER)
    again.load(saved)
    assert not again.may_be_asked(), "nor after a restart"
    assert (again.unsaved, again.unseen) == (False, drops.unseen)
    another = BrokerDrops(TOPIC, "another:1883")
    another.load(saved)
    assert another.may_be_asked()


def test_a_broker_that_has_granted_it_is_asked_at_once_also_after_a_restart() -> None:
    drops = BrokerDrops(TOPIC, BROKER)
    assert drops.may_be_asked()
    drops.asked()
    drops.answered("")
    drops.disconnected()
    assert drops.source
    again = BrokerDrops(TOPIC, BROKER)
    again.load(drops.to_save())
    assert again.source


def test_connections_that_end_at_other_times_are_no_reason_to_ask_no_more() -> None:
    drops = BrokerDrops(TOPIC, BROKER)
    for _ in range(2 * MOST_CUTS):
        drops.disconnected()
        drops.asked()
        drops.disconnected()
        drops.asked()
        drops.answered("")
        drops.disconnected()
    assert drops.source


# -- what is kept


def test_what_was_dropped_while_the_gateway_was_away_is_counted_when_it_is_back() -> None:
    before = heard(1_000, 1_003)
    after = BrokerDrops(TOPIC, BROKER)
    after.load(before.to_save())
    assert after.unseen, "it has said nothing yet"
    assert heard(1_048, drops=after).dropped == 45


@pytest.mark.parametrize("other", [BrokerDrops(TOPIC, "elsewhere:1883"), BrokerDrops("another/topic", BROKER)])
def test_what_another_broker_or_topic_said_is_no_baseline(other: BrokerDrops) -> None:
    other.load(heard(1_000).to_save())
    assert heard(5_000, drops=other).dropped == 0
    assert other.due(0.0)


def test_only_what_changed_is_to_be_kept() -> None:
    drops = BrokerDrops(TOPIC, BROKER)
    assert (drops.due(0.0), drops.unsaved, drops.to_save()) == (False, False, "")
    heard(7, drops=drops)
    assert drops.due(0.0), "the first one at once"
    assert '"dropped": 7' in drops.to_save()
    heard(7, drops=drops)
    assert (drops.due(0.0), drops.unsaved, drops.to_save()) == (False, False, "")
    heard(8, drops=drops, now=50.0)
    heard(9, drops=drops, now=60.0)
    assert drops.unsaved
    assert (drops.due(49.0 + SAVE_S), drops.due(50.0 + SAVE_S)) == (False, True)


def kept(gateway: Gateway) -> BrokerDrops:
    drops = BrokerDrops(TOPIC, BROKER)
    drops.load(gateway.database.meta("broker_drops", ""))
    return drops


@in_loop
async def test_the_last_value_is_written_with_a_commit_the_first_one_with_the_next_try(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    drops = gateway.ingest.drops
    await gateway.flows.deploy(document(), "mqtt")
    await gateway.checkpoint()
    heard(100, drops=drops)
    await gateway.checkpoint()  # of a flow that has nothing to write
    assert heard(101, drops=kept(gateway)).dropped == 1
    heard(120, drops=drops)
    await gateway.checkpoint()
    assert heard(120, drops=kept(gateway)).dropped == 20, "growth waits for a commit"
    gateway.feed(1, 1.0)
    await gateway.checkpoint()
    assert heard(120, drops=kept(gateway)).dropped == 0
    heard(130, drops=drops, now=gateway.clock.monotonic())
    gateway.clock.advance(SAVE_S)
    await gateway.checkpoint()
    assert heard(130, drops=kept(gateway)).dropped == 0, "but not for ever"
    gateway.crash()


@in_loop
async def test_what_a_failed_commit_should_have_written_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.feed(1, 1.0)
    heard(100, drops=gateway.ingest.drops)

    def fail(*_: object) -> None:
        raise StoreError("full")

    with monkeypatch.context() as full:
        full.setattr(gateway.database, "_write_table", fail)
        assert not await gateway.checkpoint()
    assert gateway.database.meta("broker_drops") is None
    assert await gateway.checkpoint()
    assert heard(101, drops=kept(gateway)).dropped == 1
    gateway.crash()


# -- what is shown


def test_it_stands_in_the_status_and_among_the_drops(tmp_path: Path) -> None:
    daemon = Daemon(GatewaySettings(gateway=GatewaySection(id="g1", data_dir=str(tmp_path))))
    ingest = daemon.status.object()["ingest"]
    assert ingest["broker_dropped"] is None
    assert ingest["broker_drops_unseen"]
    heard(5, 50, "x", drops=daemon.ingest.drops)
    status = daemon.status.object()
    assert (status["ingest"]["broker_dropped"], status["ingest"]["broker_drops_unseen"]) == (45, "")
    assert {d["reason"]: d["rows"] for d in status["drops"]} == {
        "by the sensors' broker, of any client": 45,
        "no count on sensors.drops_topic": 1,
    }
    assert status["ingest"]["error"] == ""


@in_loop
async def test_a_stop_in_good_order_keeps_the_last_value_though_no_flow_has_anything_to_write(tmp_path: Path) -> None:
    settings = GatewaySettings(gateway=GatewaySection(id="g1", data_dir=str(tmp_path)))
    daemon = Daemon(settings)
    heard(5, 50, drops=daemon.ingest.drops)
    await asyncio.wait_for(daemon.end(), 60.0)
    again = Daemon(settings)
    drops = BrokerDrops(TOPIC, again.ingest.drops.broker)
    drops.load(again.database.meta("broker_drops", ""))
    assert heard(60, drops=drops).dropped == 10
    again.database.close()


def test_a_topic_with_wildcards_is_no_setting(tmp_path: Path) -> None:
    from edgert.core.config import parse
    from edgert.core.errors import DocumentError

    with pytest.raises(DocumentError, match="drops_topic"):
        parse(GatewaySettings, '[sensors]\ndrops_topic = "$SYS/#"\n', {}, "gateway.toml")
    assert parse(GatewaySettings, '[sensors]\ndrops_topic = ""\n', {}, "gateway.toml").sensors.drops_topic == ""


@pytest.mark.parametrize("text", ["{", "[]", '{"broker": "b:1", "topic": "t", "dropped": "many"}', '{"dropped": {}}'])
def test_a_last_value_that_is_damaged_does_not_count(text: str) -> None:
    drops = BrokerDrops("t", "b:1")
    drops.load(text)
    drops.take_untrusted([b"7"], 0.0)
    assert drops.dropped == 0
