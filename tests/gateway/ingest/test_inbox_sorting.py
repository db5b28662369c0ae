"""Which flows get a message: runs of QoS 0 by columns, several topics, what is retained."""

from __future__ import annotations

from typing import Any

import pytest

from edgert.core.checkpoint.position import Position
from edgert.mqtt.packets.packets import Publish, PublishRun
from edgert.runtime.checkpoint.progress import Progress
from gateway.ingest.inbox import NOWHERE, Inbox, Reader, Route
from gateway.ingest.message_size import MESSAGE_BYTES
from tests.gateway.ingest.inboxes import inbox_of, message, taken


@pytest.mark.parametrize("ids", [(), (3,)])
def test_messages_of_a_run_go_each_to_the_flows_of_its_topic(ids: tuple[int, ...]) -> None:
    """3.1.1 knows no identifiers; and a version 5 broker that says it has none may still send those of an old session,
    which then mean nothing (`by_id` false)."""
    one, two = Progress(Position()), Progress(Position())
    routes = {"a": Route((Reader(one, 1),)), "b": Route((Reader(two, 2),))}  # type: ignore[arg-type]
    inbox = Inbox()
    run = PublishRun(["a", "b", "c", "a"], [b"1", b"22", b"333", b"4444"], ids)
    batches = inbox.receive([run], lambda topic, ids: routes.get(topic, NOWHERE), 0.0, 0.0, by_id=False)
    assert {r: (b.topics, b.payloads) for r, b in batches} == {
        routes["a"]: (["a", "a"], [b"1", b"4444"]),
        routes["b"]: (["b"], [b"22"]),
    }
    assert (inbox.counters.messages, inbox.counters.bytes, inbox.counters.unrouted) == (4, 10, 1)
    assert dict(batches)[routes["a"]].size == 5 + 2 * MESSAGE_BYTES


def test_a_run_by_one_subscription_goes_one_way_and_is_looked_up_once() -> None:
    looked: list[str] = []
    inbox, route = inbox_of(Progress(Position()))

    def lookup(topic: str, ids: tuple[int, ...]) -> Route:
        looked.append(topic)
        return route

    run = PublishRun(["a", "b"], [b"1", b"22"], (3,))
    batches = inbox.receive([run, run], lookup, 0.0, 0.0)
    assert dict(batches)[route].payloads == [b"1", b"22"] * 2
    assert looked == ["a", "a"]
    assert (inbox.counters.messages, inbox.counters.bytes, inbox.counters.unrouted) == (4, 6, 0)
    assert inbox.receive([run], lambda topic, ids: NOWHERE, 0.0, 0.0) == []
    assert (inbox.counters.messages, inbox.counters.bytes, inbox.counters.unrouted) == (6, 9, 2)


def test_a_batch_is_owed_an_acknowledgement_as_a_whole_or_not_at_all_and_order_is_kept() -> None:
    """So what comes at QoS 0 beside QoS 1 can be told from it, where only one of them may be dropped."""
    inbox, route = inbox_of(Progress(Position()))
    read: list[Publish | PublishRun] = [
        message(0, b"0", qos=0),
        message(1, b"1"),
        message(2, b"2", qos=2),
        PublishRun(["t"], [b"3"], ()),
        message(4),
    ]
    batches = [batch for _, batch in inbox.receive(read, lambda topic, ids: route, 0.0, 0.0)]
    assert [(b.payloads, b.owed) for b in batches] == [
        ([b"0"], False), ([b"1", b"2"], True), ([b"3"], False), ([b"x"], True),
    ]  # fmt: skip
    assert sum(batch.size for batch in batches if batch.owed) == inbox.uncommitted_bytes


@pytest.mark.parametrize("qos", [0, 1])
def test_a_long_topic_counts_for_what_waits_as_its_payload_does(qos: int) -> None:
    """Of 60,000 letters, or four times as many bytes where one letter makes Python store all in four bytes."""
    inbox, route = inbox_of(Progress(Position()))
    read: list[Publish | PublishRun] = [
        Publish(topic, b"12345", qos, packet_id=n * qos)
        for n, topic in enumerate(("t", "t" * 60_000, "\U0001f600" + "t" * 60_000), 1)
    ]
    (batch,) = [batch for _, batch in inbox.receive(read, lambda topic, ids: route, 0.0, 0.0)]
    assert 300_000 + 3 * (MESSAGE_BYTES + 5) < batch.size < 302_000
    assert inbox.uncommitted_bytes == qos * batch.size
    assert inbox.counters.bytes == 15, "payload alone"


def test_a_retained_message_is_for_who_is_open_to_it_and_one_that_comes_again_for_who_wants_such() -> None:
    inbox, route = inbox_of(Progress(Position()), Progress(Position()), Progress(Position()), retained=True)
    route.readers[0].open = route.readers[1].open = False
    route.readers[1].retained = False

    def takers(**more: Any) -> list[object]:
        batches = inbox.receive([message(9, retain=True, **more)], lambda topic, ids: route, 0.0, 0.0)
        return [r.instance for found, _ in batches for r in found.readers]

    assert takers() == [2]
    assert takers(dup=True, payload=b"new here") == [0, 2]


def test_retained_messages_enter_only_flows_that_ask_for_them_and_are_counted() -> None:
    for asks in (True, False):
        inbox, route = inbox_of(Progress(Position()), retained=asks)
        assert taken(inbox, route, message(1, retain=True)) == asks
        assert inbox.counters.retained_ignored == (not asks)
        assert inbox.due() == ([] if asks else [(1, 1)])


def test_a_retained_message_that_is_known_by_another_route_is_not_ignored() -> None:
    inbox, its = inbox_of(Progress(Position()), retained=True)
    known, other = Route(its.readers, seed=1), Route((), seed=2)
    assert taken(inbox, known, message(1, retain=True))
    again = message(1, retain=True, dup=True)
    assert not inbox.receive([again], lambda topic, ids: other, 0.0, 0.0, others=lambda *_: (known,))
    assert (inbox.counters.redelivered, inbox.counters.retained_ignored) == (1, 0)
