"""Acknowledgements that wait: cut to the broker's limit, each gateway in its turn, bounded, and nothing lost unsaid."""

from __future__ import annotations

import random
from collections import deque
from itertools import pairwise

import pytest

from edgert.central.collector.known_gateway import GatewayCounters
from edgert.central.collector.waiting_acknowledgements import (
    MOST_ENTRIES,
    MOST_FAILURES,
    MOST_PAYLOAD_BYTES,
    WaitingAcknowledgements,
)
from edgert.core.clock import VirtualClock
from edgert.core.results.results import Acknowledgement, unpack_acknowledgement_untrusted

EPOCH = 1 << 32
Acks = dict[tuple[str, int, int], int]


class Broker:
    """Takes messages of up to `limit` bytes, by gateway; None: it hangs up at that topic. `full`: takes none."""

    def __init__(self, limit: int = 2_000) -> None:
        self.limit: dict[str, int | None] = {}
        self.most = limit
        self.full: set[str] = set()
        self.tries = 0
        self.said: list[Acknowledgement] = []
        self.counters = GatewayCounters()
        self.waiting = WaitingAcknowledgements(self.room, self.publish, self.counters, VirtualClock())

    def room(self, gateway: str) -> int | None:
        return self.limit.get(gateway, self.most)

    def publish(self, gateway: str, payload: bytes) -> bool:
        self.tries += 1
        room = self.room(gateway)
        assert room is not None
        assert len(payload) <= min(room, MOST_PAYLOAD_BYTES)
        if gateway in self.full:
            return False
        said = unpack_acknowledgement_untrusted(payload)
        assert said.gateway == gateway
        self.said.append(said)
        return True

    def heard(self, gateway: str) -> tuple[Acks, dict[str, bytes]]:
        """All that a gateway was told: streams, and answers with their tokens."""
        acks: Acks = {}
        answers: dict[str, bytes] = {}
        for said in self.said:
            if said.gateway == gateway:
                acks |= said.acks
                answers |= {flow: said.tokens.get(flow, b"") for flow in said.answers}
        return acks, answers


def ack(gateway: str, acks: Acks, *answers: str, token: bytes = b"") -> Acknowledgement:
    tokens = dict.fromkeys(answers, token) if token else {}
    return Acknowledgement(gateway=gateway, collector="c", acks=acks, answers=answers, tokens=tokens)


def long_names(flows: int) -> list[str]:
    return [f"{n:060}" for n in range(flows)]


def streams(flow: str, epochs: int = 1, of_epoch: int = 1) -> Acks:
    return {(flow, n * EPOCH, s): 300 for n in range(1, epochs + 1) for s in range(of_epoch)}


def test_small_acknowledgement_is_one_message_as_it_is() -> None:
    broker = Broker()
    a = ack("g1", {("f", EPOCH, 0): 3, ("h", EPOCH, 1): 2**62}, "f", "empty", token=b"12345678")
    broker.waiting.keep([a])
    broker.waiting.say()
    (said,) = broker.said
    assert (said.acks, set(said.answers), said.tokens) == (a.acks, set(a.answers), a.tokens)
    assert len(broker.waiting) == 0
    broker.waiting.say()
    assert len(broker.said) == 1


@pytest.mark.parametrize("token", [b"", b"t" * 16])
def test_an_answer_and_the_streams_of_its_flow_are_in_one_message(token: bytes) -> None:
    """A gateway takes a stream that an answer does not name for one of which nothing has landed."""
    broker, names = Broker(), long_names(45)
    acks = {key: n for name in names for key, n in streams(name, 2, 3).items()}
    broker.waiting.keep([ack("g1", acks, *names, token=token)])
    broker.waiting.say()
    assert len(broker.said) > 10
    assert broker.heard("g1") == (acks, dict.fromkeys(names, token))
    for said in broker.said:
        assert said.acks == {key: n for name in said.answers for key, n in streams(name, 2, 3).items()}
    assert broker.counters.unsaid == 0


def test_messages_are_cut_where_the_broker_has_no_limit_too() -> None:
    broker, names = Broker(limit=1 << 28), long_names(1_000)
    acks = {key: n for name in names for key, n in streams(name, 1, 4).items()}
    broker.waiting.keep([ack("g1", acks)])
    broker.waiting.say()
    assert broker.heard("g1")[0] == acks
    assert len(broker.said) == 3


def test_each_gateway_has_its_turn_after_one_message_of_another() -> None:
    broker = Broker()
    much = {key: n for name in long_names(100) for key, n in streams(name).items()}
    broker.waiting.keep([ack("greedy", much), ack("g1", streams("f")), ack("g2", streams("f"))])
    broker.waiting.say()
    assert [said.gateway for said in broker.said[:4]] == ["greedy", "g1", "g2", "greedy"]
    assert broker.heard("greedy")[0] == much


def test_what_is_too_large_even_alone_is_dropped_and_said_and_others_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker()
    broker.limit["small"] = 130
    name = "x" * 63
    broker.waiting.keep([ack("small", streams(name) | streams("f"), name, "f"), ack("g1", streams(name), name)])
    broker.waiting.say()
    assert broker.heard("g1") == (streams(name), {name: b""})
    assert broker.heard("small") == (streams("f"), {"f": b""})
    assert (len(broker.waiting), broker.counters.unsaid) == (0, 2)
    assert broker.counters.newest_unsaid.startswith(f"gateway small: a stream of flow {name} takes 1")
    assert "the broker takes 130: raise its limit" in broker.counters.newest_unsaid
    assert len([r for r in caplog.records if "gateway small is not told all that has landed" in r.message]) == 1


def test_of_an_answer_that_is_too_large_the_streams_are_said() -> None:
    broker, name = Broker(), "x" * 63
    acks = streams(name, 4, 16)
    broker.waiting.keep([ack("g1", acks, name)])
    broker.waiting.say()
    assert broker.heard("g1") == (acks, {})
    assert broker.counters.unsaid == 1
    assert f"an answer about flow {name} takes 5" in broker.counters.newest_unsaid


def test_a_topic_at_which_the_broker_hangs_up_waits_and_others_are_told() -> None:
    broker = Broker()
    broker.limit["g1"] = None
    broker.waiting.keep([ack("g1", streams("f")), ack("g2", streams("f"))])
    broker.waiting.say()
    assert [said.gateway for said in broker.said] == ["g2"]
    assert (len(broker.waiting), broker.counters.unsaid) == (1, 0)
    del broker.limit["g1"]
    broker.waiting.say()
    assert broker.heard("g1")[0] == streams("f")


def test_a_message_that_is_not_taken_holds_up_no_other() -> None:
    broker = Broker()
    broker.full = {"g1"}
    broker.waiting.keep([ack(f"g{n}", streams("f")) for n in range(1, 50)])
    broker.waiting.say()
    assert {said.gateway for said in broker.said} == {f"g{n}" for n in range(2, 50)}
    assert len(broker.waiting) == 1


def test_where_nothing_can_be_sent_few_are_tried_and_all_have_their_turn_in_the_end() -> None:
    broker = Broker()
    broker.full = {f"g{n}" for n in range(99)}
    broker.waiting.keep([ack(f"g{n}", streams("f")) for n in range(100)])
    broker.waiting.say()
    assert (broker.said, broker.tries) == ([], MOST_FAILURES)
    for _ in range(5):
        broker.waiting.say()
    assert [said.gateway for said in broker.said] == ["g99"]
    broker.full = set()
    broker.waiting.say()
    assert len(broker.said) == 100


def test_while_nothing_can_be_said_what_waits_of_a_gateway_is_bounded_and_counted() -> None:
    """60,000 answers were kept."""
    broker = Broker()
    for n in range(60_000):
        broker.waiting.keep([ack("g1", {}, f"f{n}", token=b"12345678")])
    broker.waiting.keep([ack("g2", streams("f"), "f"), ack("g1", {}, "f7", token=b"newer")])
    assert broker.counters.unsaid == 60_000 - MOST_ENTRIES
    broker.waiting.say()
    assert broker.heard("g2") == (streams("f"), {"f": b""})
    answers = broker.heard("g1")[1]
    assert (len(answers), answers["f7"]) == (MOST_ENTRIES, b"newer")


def test_a_flow_is_kept_whole_or_not_at_all() -> None:
    broker = Broker()
    waiting = WaitingAcknowledgements(broker.room, broker.publish, broker.counters, VirtualClock(), most_entries=10)
    waiting.keep([ack("g1", streams("f", 1, 6), "f")])
    waiting.keep([ack("g1", streams("h", 1, 3), "h")])
    waiting.say()
    assert broker.heard("g1") == (streams("f", 1, 6), {"f": b""})
    assert broker.counters.unsaid == 4


def test_all_that_waits_is_bounded_and_what_has_waited_longest_makes_way() -> None:
    broker = Broker()
    waiting = WaitingAcknowledgements(broker.room, broker.publish, broker.counters, VirtualClock(), most_in_all=5)
    waiting.keep([ack(f"g{n}", streams("f", 2)) for n in range(3)])
    waiting.say()
    assert [said.gateway for said in broker.said] == ["g1", "g2"]
    assert broker.counters.unsaid == 2


def test_the_newer_number_counts_and_forgotten_gateways_are_told_nothing() -> None:
    broker = Broker()
    broker.waiting.keep([ack("g1", {("f", EPOCH, 0): 3}, "f", token=b"older"), ack("g2", streams("f"))])
    broker.waiting.keep([ack("g1", {("f", EPOCH, 0): 4, ("f", EPOCH, 1): 1})])
    broker.waiting.forget({"g2", "g3"})
    broker.waiting.say()
    (said,) = broker.said
    assert (said.acks, said.tokens) == ({("f", EPOCH, 0): 4, ("f", EPOCH, 1): 1}, {"f": b"older"})


@pytest.mark.parametrize("seed", range(30))
def test_whatever_the_limits_are_all_is_said_or_counted(seed: int) -> None:
    draw = random.Random(seed)
    broker = Broker()
    gateways = [f"g{n}" for n in range(5)]
    wanted: dict[str, tuple[Acks, set[str]]] = {gateway: ({}, set()) for gateway in gateways}
    turns: deque[int] = deque()
    for _ in range(30):
        for gateway in gateways:
            broker.limit[gateway] = draw.choice([None, 90, 160, 400, 2_000, 1 << 28])
        broker.full = {gateway for gateway in gateways if draw.random() < 0.2}
        gateway, flow = draw.choice(gateways), draw.choice("ab") * draw.randint(1, 63)
        acks = streams(flow, draw.randint(0, 3), draw.randint(1, 4))
        answers = (flow,) if draw.random() < 0.5 else ()
        wanted[gateway][0].update(acks)
        wanted[gateway][1].update(answers)
        broker.waiting.keep([ack(gateway, acks, *answers)])
        broker.waiting.say()
        turns.append(broker.counters.unsaid)
    broker.limit, broker.full, broker.most = {}, set(), 1 << 28
    broker.waiting.say()
    missing = 0
    for gateway, (acks, flows) in wanted.items():
        heard, answered = broker.heard(gateway)
        assert heard.items() <= acks.items()
        assert answered.keys() <= flows
        missing += len(acks) - len(heard) + len(flows) - len(answered)
    assert missing <= broker.counters.unsaid, "lost without a word"
    assert all(before <= after for before, after in pairwise(turns))
    assert len(broker.waiting) == 0
