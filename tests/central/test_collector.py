"""The collector apart from MQTT: messages in, commits, acknowledgements out."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from edgert.central.collector import Collector
from edgert.central.inbox import Inbox, Message
from edgert.central.landing import Batch, Landing
from edgert.central.tables import TableError
from edgert.core.clock import VirtualClock
from edgert.core.results import GapBatch, Hello, OpenBatch, RowsBatch, pack_result, results_topic
from tests.central.results_examples import FLOW, Gateway, contribution

EPOCH = 1 << 32


def message(result: Batch | Hello, gateway: str | None = None) -> Message:
    assert isinstance(result, OpenBatch | RowsBatch | GapBatch | Hello)
    return Message(results_topic("f", gateway or result.gateway, result.flow), pack_result(result))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def collector(tmp_path: Path, clock: VirtualClock) -> Collector:
    return Collector("c1", Landing(str(tmp_path)), clock, hold_s=10.0, hold_bytes=10_000)


def test_acknowledgement_says_what_landed_and_nothing_more(collector: Collector) -> None:
    g = Gateway("g1")
    opening, second, third = g.open(), g.rows(contribution(0, "a", 1.0)), g.rows(contribution(0, "b", 1.0))
    (said,) = collector.handle([message(opening), message(third)])
    assert (said.gateway, said.collector, said.acks) == ("g1", "c1", {(FLOW, EPOCH, 0): 1})
    assert collector.counters.held == 1
    (said,) = collector.handle([message(second)])
    assert said.acks == {(FLOW, EPOCH, 0): 3}
    assert collector.counters.rows == 2


def test_duplicate_is_acknowledged_again_without_a_commit(collector: Collector) -> None:
    g = Gateway("g1")
    opening = message(g.open())
    collector.handle([opening])
    commits = collector.counters.commits
    (said,) = collector.handle([opening])
    assert said.acks == {(FLOW, EPOCH, 0): 1}
    assert collector.counters.commits == commits
    assert collector.counters.duplicates == 1


def test_hello_of_an_unknown_flow_is_answered_without_an_entry(collector: Collector) -> None:
    (said,) = collector.handle([message(Hello(gateway="g9", flow=FLOW))])
    assert (said.acks, said.answers) == ({}, (FLOW,))


def test_hello_after_a_restart_is_answered_from_the_tables(collector: Collector, tmp_path: Path) -> None:
    old, new = Gateway("g1"), Gateway("g1", epoch=5 << 32)
    collector.handle([message(b) for b in (old.open(), new.open(), new.rows(contribution(0, "a", 1.0)))])
    again = Collector("c2", Landing(str(tmp_path)), VirtualClock(), 10.0, 10_000)
    (said,) = again.handle([message(Hello(gateway="g1", flow=FLOW))])
    assert said.acks == {(FLOW, 5 << 32, 0): 2}
    assert said.greatest_epoch(FLOW) == 5 << 32


def test_held_too_long_is_dropped_and_taken_when_it_comes_again(collector: Collector, clock: VirtualClock) -> None:
    g = Gateway("g1")
    opening, second = g.open(), g.rows(contribution(0, "a", 1.0))
    collector.handle([message(second)])
    clock.advance(10.0)
    collector.handle([])
    assert (collector.counters.held, collector.counters.expired) == (0, 1)
    (said,) = collector.handle([message(opening)])
    assert said.acks == {(FLOW, EPOCH, 0): 1}
    (said,) = collector.handle([message(second)])
    assert said.acks == {(FLOW, EPOCH, 0): 2}


def test_nothing_is_acknowledged_while_a_table_cannot_be_written(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = Gateway("g1")
    opening, second = message(g.open()), message(g.rows(contribution(0, "a", 1.0)))
    land = Landing.land

    def full(*_: object) -> None:
        raise TableError("no space left on device")

    monkeypatch.setattr(Landing, "land", full)
    assert collector.handle([opening]) == []
    assert collector.handle([second]) == []
    # A repetition of what waits for its commit is not acknowledged either.
    assert [a.acks for a in collector.handle([opening])] in ([], [{}])
    assert collector.waits is True
    assert "no space left" in collector.counters.last_error
    monkeypatch.setattr(Landing, "land", land)
    (said,) = collector.handle([])
    assert said.acks == {(FLOW, EPOCH, 0): 2}
    assert collector.handle([]) == []
    assert collector.counters.last_error == ""


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x80", b"{}", bytes(range(256))])
def test_garbage_is_kept_for_people_and_hurts_nobody(collector: Collector, tmp_path: Path, payload: bytes) -> None:
    g = Gateway("g1")
    (said,) = collector.handle([Message(results_topic("f", "g1", FLOW), payload), message(g.open())])
    assert said.acks == {(FLOW, EPOCH, 0): 1}
    assert collector.counters.malformed == 1
    assert (tmp_path / "quarantine" / "_delta_log").is_dir()


def test_result_under_another_gateway_s_topic_is_not_taken(collector: Collector) -> None:
    assert collector.handle([message(Gateway("g1").open(), gateway="g2")]) == []
    assert (collector.counters.malformed, collector.counters.rows) == (1, 0)


def test_full_inbox_makes_the_network_wait_and_then_drops() -> None:
    inbox = Inbox(most_bytes=10, patience_s=0.01)
    assert inbox.put(Message("t", b"x" * 50))  # alone, even a large one fits
    assert not inbox.put(Message("t", b"x"))
    assert inbox.dropped == 1
    assert len(inbox.take(0, 0, 0)) == 1
    assert inbox.put(Message("t", b"x"))


def test_waiting_network_goes_on_when_the_inbox_is_emptied() -> None:
    inbox = Inbox(most_bytes=1, patience_s=60.0)
    inbox.put(Message("t", b"1"))
    network = threading.Thread(target=inbox.put, args=(Message("t", b"2"),))
    network.start()
    assert [m.payload for m in inbox.take(0, 1, 60.0)] == [b"1"]
    assert [m.payload for m in inbox.take(0, 1, 60.0)] == [b"2"]
    network.join(10)
    assert inbox.dropped == 0
