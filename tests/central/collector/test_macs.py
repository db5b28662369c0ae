"""MACs at the collector: which results it takes, what it counts and says, and how it signs acknowledgements."""

from __future__ import annotations

import logging

import pytest

from edgert.central.collector.known_gateway import GatewayCounters
from edgert.central.collector.macs import ResultMacs
from edgert.core.clock import VirtualClock
from edgert.core.results.macs import gateway_key, is_authentic, split_untrusted, with_macs
from edgert.core.results.results import acks_topic, results_topic

NEW, FORMER = bytes(range(32)), bytes(32)
FLEET = "farm"
TOPIC = results_topic(FLEET, "g1", "air")


def of(gateway: str, central: bytes = NEW) -> list[bytes]:
    return [gateway_key(central, FLEET, gateway)]


class Collector:
    def __init__(self, *keys: bytes, accept_unsigned: bool = False) -> None:
        self.counters, self.clock = GatewayCounters(), VirtualClock()
        self.macs = ResultMacs(FLEET, keys, accept_unsigned, self.counters, self.clock)

    def takes(self, message: bytes, topic: str = TOPIC) -> bool:
        payload = self.macs.payload_untrusted(message, topic)
        assert payload in (None, b"result")
        return payload is not None


def test_a_result_without_a_mac_or_with_a_wrong_one_is_refused_and_counted() -> None:
    collector = Collector(NEW)
    refused = [
        b"result",
        with_macs(b"result", TOPIC, of("g2")),
        with_macs(b"result", TOPIC, of("g1", FORMER)),
        with_macs(b"result", acks_topic(FLEET, "g1"), of("g1")),
        with_macs(b"result", results_topic(FLEET, "g1", "water"), of("g1")),
        b"\xc1",
        b"\xc1\xff",
    ]
    assert not any(map(collector.takes, refused))
    assert (collector.counters.not_authentic, collector.counters.unsigned) == (len(refused), 1)
    assert collector.takes(with_macs(b"result", TOPIC, of("g1")))
    assert collector.counters.not_authentic == len(refused)
    assert TOPIC in collector.counters.newest_not_authentic


def test_a_board_speaks_for_itself_alone() -> None:
    collector = Collector(NEW)
    assert collector.takes(
        with_macs(b"result", results_topic(FLEET, "g2", "air"), of("g2")), results_topic(FLEET, "g2", "air")
    )
    assert not collector.takes(with_macs(b"result", TOPIC, of("g2")))


@pytest.mark.parametrize("topic", ["", "x", "a/b", "/", "a//b", "edgert/v1/farm/@results/1/g1/air/more"])
def test_any_topic_is_refused_and_none_is_an_error(topic: str) -> None:
    assert not Collector(NEW).takes(with_macs(b"result", TOPIC, of("g1")), topic)


def test_while_gateways_get_their_keys_unsigned_results_are_taken_and_forged_ones_are_not() -> None:
    collector = Collector(NEW, accept_unsigned=True)
    assert collector.takes(b"result")
    assert collector.takes(with_macs(b"result", TOPIC, of("g1")))
    assert not collector.takes(with_macs(b"result", TOPIC, of("g2")))
    assert (collector.counters.unsigned, collector.counters.not_authentic) == (1, 1)


def test_a_former_key_is_good_as_long_as_it_is_in_the_file() -> None:
    signed = with_macs(b"result", TOPIC, of("g1", FORMER))
    assert Collector(NEW, FORMER).takes(signed)
    assert not Collector(NEW).takes(signed)


def test_an_acknowledgement_is_good_for_gateways_with_the_new_and_with_the_former_key() -> None:
    macs, payload = split_untrusted(Collector(NEW, FORMER).macs.signed(b"ack", "g1"))
    topic = acks_topic(FLEET, "g1")
    assert payload == b"ack"
    assert is_authentic(macs, payload, topic, of("g1"))
    assert is_authentic(macs, payload, topic, of("g1", FORMER))
    assert not is_authentic(macs, payload, topic, of("g2"))
    assert Collector().macs.signed(b"ack", "g1") == b"ack"


def test_without_a_key_macs_are_not_checked_which_is_said(caplog: pytest.LogCaptureFixture) -> None:
    collector = Collector()
    assert collector.takes(b"result")
    assert collector.takes(with_macs(b"result", TOPIC, of("g2")))
    assert collector.macs.payload_untrusted(b"\xc1\xff", TOPIC) == b"\xc1\xff", "no result, as others say"
    assert (collector.counters.unchecked, collector.counters.not_authentic) == (1, 0)
    assert "this collector has no collector.mac_key_file" in caplog.text


def test_a_forger_writes_a_line_a_minute_with_the_name_that_he_claims(caplog: pytest.LogCaptureFixture) -> None:
    collector = Collector(NEW)
    for _ in range(1_000):
        collector.takes(b"result")
    (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert line.startswith("gateway g1: a result is refused: expected a MAC by the gateway's key, got none")
    collector.clock.advance(61)
    collector.takes(b"result")
    assert len(caplog.records) == 2
    assert "gateway g1: a result is refused" in caplog.records[1].getMessage()
    assert "1000 more in 61 s" in caplog.records[1].getMessage()


def test_a_forger_of_many_names_fills_neither_log_nor_memory(caplog: pytest.LogCaptureFixture) -> None:
    collector = Collector(NEW)
    for n in range(5_000):
        collector.takes(b"result", results_topic(FLEET, f"g{n}", "air"))
    assert len(caplog.records) < 40
    assert collector.counters.not_authentic == 5_000
