"""Topics from outside: a broker's rules leave the last level to the gateway, so it may be 60 kB long. What is no topic
of results is refused on the network's thread, and every bound on messages counts their topics."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgert.central.collector.collector import Collector
from edgert.central.collector.flow_backoff import FlowBackoff
from edgert.central.collector.inbox import ResultInbox, ResultMessage
from edgert.central.collector.known_gateway import GatewayCounters
from edgert.central.collector.main import Program
from edgert.central.collector.messages import ResultTopics
from edgert.central.collector.turns import Turns
from edgert.central.landing.arrow_rows import KEPT_BYTES, KEPT_TEXT
from edgert.central.landing.landing import Landing
from edgert.core.clock import VirtualClock
from edgert.core.results.results import PARTITIONS, pack_result, partition_of, results_topic
from edgert.core.settings.central import CollectorSettings
from tests.central.results_examples import FLOW, Gateway
from tests.central.worlds import read

LONG = results_topic("f", "g666", "x" * 60_000)
BOUND = 1 << 20


def inbox() -> Callable[[ResultMessage], bool]:
    return ResultInbox(BOUND, patience_s=0.0).put


def turns() -> Callable[[ResultMessage], bool]:
    made = Turns(BOUND)

    def add(message: ResultMessage) -> bool:
        made.add(message)
        return not made.dropped

    return add


def backoff() -> Callable[[ResultMessage], bool]:
    made = FlowBackoff(BOUND)
    made.failed("f", "why", 0.0)
    return lambda message: made.keep("f", message)


@pytest.mark.parametrize("bounded", [inbox, turns, backoff])
@pytest.mark.parametrize(
    ("message", "most"),
    [
        (ResultMessage(LONG, b"x"), BOUND // 60_000),
        (ResultMessage("\N{GRINNING FACE}" + LONG, b"x"), BOUND // 240_000),  # four bytes a character
        (ResultMessage("t", b""), BOUND // 200),
        (ResultMessage("t", bytes(10_000)), BOUND // 10_000),
    ],
    ids=["long topic", "long wide topic", "nothing", "payload"],
)
def test_messages_are_bounded_by_topic_payload_and_overhead(
    bounded: Callable[[], Callable[[ResultMessage], bool]], message: ResultMessage, most: int
) -> None:
    put = bounded()
    assert 0 < sum(put(message) for _ in range(most + 1)) <= most


@pytest.mark.parametrize(
    ("topic", "good"),
    [
        (results_topic("f", "g1", FLOW), True),
        (results_topic("f", "g" * 63, "f" * 63), True),
        (results_topic("f", "g1", "f" * 64), False),
        (LONG, False),
        (results_topic("f", "g1", "Air"), False),
        (results_topic("f", "g1", "air_v2"), False),
        (results_topic("f", "g" * 64, FLOW), False),
        (results_topic("f", "g1", FLOW) + "\n", False),
        (results_topic("other", "g1", FLOW), False),
        (f"edgert/v1/f/@results/{'9' * 60_000}/g1/{FLOW}", False),
        (f"edgert/v1/f/@results/{(partition_of('g1') + 1) % PARTITIONS}/g1/{FLOW}", False),
        ("", False),
        ("/", False),
    ],
)
def test_only_a_results_topic_is_taken_and_others_are_counted(topic: str, good: bool) -> None:
    counters = GatewayCounters()
    assert ResultTopics("f", counters).has_untrusted(topic) == good
    assert counters.bad_topics == (not good)


def test_many_bad_topics_make_few_short_lines(caplog: pytest.LogCaptureFixture) -> None:
    counters = GatewayCounters()
    topics = ResultTopics("f", counters)
    for _ in range(1_000):
        topics.has_untrusted(LONG)
    assert counters.bad_topics == 1_000
    assert len(caplog.records) == 10
    assert max(len(record.message) for record in caplog.records) < 500


def test_a_bad_topic_does_not_come_to_the_inbox(tmp_path: Path) -> None:
    settings = CollectorSettings()
    program = Program(replace(settings, collector=replace(settings.collector, fleet="f")), str(tmp_path))
    good = ResultMessage(results_topic("f", "g1", FLOW), pack_result(Gateway("g1").open()))
    program._received_untrusted(LONG, b"x")
    program._received_untrusted(good.topic, good.payload)
    assert program._inbox.take(0, 0, 0) == [good]
    assert program._collector.counters.bad_topics == 1


def test_log_and_quarantine_take_no_more_of_a_topic_than_people_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages that come to the collector by another way than the network's thread."""
    collector = Collector("c1", Landing(str(tmp_path)), VirtualClock(), 10.0, 1 << 20)
    result = pack_result(Gateway("g666").open())
    with caplog.at_level(logging.WARNING):
        collector.handle([ResultMessage(LONG, b"x"), ResultMessage(LONG, result)])
    assert collector.counters.malformed == 2
    assert max(len(record.message) for record in caplog.records) < 1_000
    for row in read(tmp_path, "quarantine"):
        assert row["topic"] == LONG[:KEPT_TEXT]
        assert len(row["reason"]) <= KEPT_TEXT


def test_a_refused_message_that_waits_for_quarantine_is_kept_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector("c1", Landing(str(tmp_path)), VirtualClock(), 10.0, 1 << 20)
    monkeypatch.setattr(Collector, "_keep_junk", lambda self: None)
    collector.handle([ResultMessage(results_topic("f", "g666", FLOW), bytes(1 << 20))])
    assert [len(payload) for _, payload, _ in collector._junk] == [KEPT_BYTES]
