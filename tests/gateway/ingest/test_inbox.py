"""The delivery rules one by one; `test_inbox_walks.py` has them all against a model of a broker."""

from __future__ import annotations

from typing import Any

from edgert.core.checkpoint.position import Position
from edgert.mqtt.packets.packets import Publish, PublishRun
from edgert.runtime.checkpoint.progress import Progress
from gateway.ingest.inbox import NOWHERE, Inbox, Reader, Route
from gateway.ingest.message_size import MESSAGE_BYTES
from tests.gateway.ingest.inboxes import inbox_of, message, taken


def test_qos_0_takes_no_index_and_owes_nothing() -> None:
    flow = Progress(Position())
    inbox, route = inbox_of(flow)
    assert taken(inbox, route, Publish("t", b"x"), Publish("t", b"x")) == 2
    assert (inbox.next_index, inbox.due(), flow.fed) == (1, [], 0)


def test_whether_it_was_acknowledged_before_a_restart_is_decided_by_the_flows_that_take_it() -> None:
    """`other` reads another topic and commits seldom: it says nothing about this message."""
    flow, other = Progress(Position(7)), Progress(Position(3))
    inbox, route = inbox_of(flow)
    inbox.flows.append(other)
    taken(inbox, route, message(1))
    restarted, route = inbox_of(Progress(Position(7)))
    restarted.flows.append(Progress(Position(3)))
    restarted.table.load(inbox.table.take_dirty().items())
    restarted.resume()
    assert taken(restarted, route, message(1, dup=True)) == 0
    assert restarted.counters.ambiguous == 1


def test_after_a_fallback_any_entry_may_have_been_acknowledged() -> None:
    flow = Progress(Position())
    inbox, route = inbox_of(flow)
    taken(inbox, route, message(1))
    inbox.resume(doubtful_to=1)
    taken(inbox, route, message(1, dup=True))
    assert inbox.counters.ambiguous == 1


def test_a_redelivery_of_which_the_damaged_table_tells_nothing_is_taken_and_counted() -> None:
    inbox, route = inbox_of(Progress(Position()))
    inbox.table.lose_all()
    assert taken(inbox, route, message(1)) == 1
    assert inbox.counters.perhaps_repeated == 0, "a new one"
    assert taken(inbox, route, message(2, dup=True)) == 1
    assert inbox.counters.perhaps_repeated == 1
    assert taken(inbox, route, message(2, dup=True)) == 0, "known by now"
    assert (inbox.counters.perhaps_repeated, inbox.counters.redelivered) == (1, 1)


def test_what_is_delivered_again_after_another_broker_had_no_session_is_taken_and_counted() -> None:
    """Of two brokers that take turns each has a session of its own, and the table is of one."""
    inbox, route = inbox_of(Progress(Position()))
    inbox.session_lost()
    assert taken(inbox, route, message(1, dup=True)) == 1
    assert inbox.counters.perhaps_repeated == 0, "nothing had come before"
    inbox.session_lost()
    assert taken(inbox, route, message(1, b"of the other"), message(2)) == 2
    assert inbox.counters.perhaps_repeated == 0
    assert taken(inbox, route, message(1, dup=True), message(3, dup=True), message(2, dup=True)) == 2
    assert (inbox.counters.perhaps_repeated, inbox.counters.redelivered) == (2, 1)


def test_a_flow_that_lacks_a_message_takes_its_redelivery_and_another_does_not() -> None:
    before, both = inbox_of(Progress(Position()))
    taken(before, both, message(1))
    has, lacks = Progress(Position(1)), Progress(Position(0))
    inbox, route = inbox_of(has, lacks)
    inbox.table.load(before.table.take_dirty().items())
    inbox.resume()
    batches = inbox.receive([message(1, dup=True)], lambda topic, ids: route, 0.0, 0.0)
    assert [r.progress for route, _ in batches for r in route.readers] == [lacks]
    assert inbox.due() == []
    lacks.committed = lacks.position()
    assert inbox.due() == [(1, 1)]


def test_a_redelivery_within_one_read_is_seen() -> None:
    inbox, route = inbox_of(Progress(Position()))
    assert taken(inbox, route, message(1), message(1, dup=True)) == 1


def test_an_oversized_message_is_acknowledged_in_turn_and_ends_its_ids_entry() -> None:
    flow = Progress(Position())
    inbox, route = inbox_of(flow)
    taken(inbox, route, message(1))
    inbox.owe(2, 1)
    assert inbox.due() == []
    flow.committed = flow.position()
    assert inbox.due() == [(1, 1), (2, 1)]
    inbox.owe(1, 1)
    assert inbox.due() == [(1, 1)]
    assert taken(inbox, route, message(1, dup=True)) == 1, "the id stood for another message since"


def test_after_pubrel_an_equal_message_under_the_same_id_is_a_new_one() -> None:
    flow = Progress(Position())
    inbox, route = inbox_of(flow)
    assert taken(inbox, route, message(7, qos=2)) == 1
    flow.committed = flow.position()
    assert inbox.due() == [(7, 2)]
    inbox.released(7)
    assert taken(inbox, route, message(7, qos=2, dup=True)) == 1
    assert inbox.counters.ambiguous == 0


def test_pubcomp_waits_for_a_commit_that_knows_of_its_pubrel() -> None:
    inbox = Inbox()
    inbox.released(7)
    before = inbox.releases
    inbox.released(8)
    assert inbox.complete() == []
    inbox.releases_written = before
    assert inbox.complete() == [7]
    inbox.connection_lost()
    inbox.releases_written = inbox.releases
    assert inbox.complete() == [], "the broker sends its PUBREL again"


def test_at_qos_2_only_what_a_fallback_made_doubtful_is_ambiguous() -> None:
    flow = Progress(Position())
    inbox, route = inbox_of(flow)
    taken(inbox, route, message(7, qos=2), message(8, qos=2))
    flow.committed = flow.position()
    assert inbox.due() == [(7, 2), (8, 2)]
    assert taken(inbox, route, message(7, qos=2, dup=True)) == 0
    assert inbox.counters.ambiguous == 0
    after = Inbox(table=inbox.table, next_index=inbox.next_index, flows=[Progress(flow.position())])
    after.resume(doubtful_to=1)
    route = Route((Reader(after.flows[0], None),))
    assert taken(after, route, message(7, qos=2, dup=True), message(8, qos=2, dup=True)) == 0
    assert (after.counters.redelivered, after.counters.ambiguous) == (2, 1)


def test_a_skipped_redelivery_is_not_called_unrouted() -> None:
    flow = Progress(Position())
    inbox, route = inbox_of(flow)
    taken(inbox, route, message(7))
    assert taken(inbox, route, message(7, dup=True)) == 0
    assert (inbox.counters.redelivered, inbox.counters.unrouted) == (1, 0)


def test_copies_under_different_subscriptions_are_different_messages() -> None:
    flow = Progress(Position())
    inbox, _ = inbox_of(flow)
    one, two = (Route((Reader(flow, n, False),), seed=n) for n in (1, 2))  # type: ignore[arg-type]
    taken(inbox, one, message(1))
    assert taken(inbox, two, message(1, dup=True)) == 1


def test_a_redelivery_may_be_known_by_another_route_and_goes_that_way() -> None:
    """It came by MQTT 5 and comes again by 3.1.1, where nothing says which subscription brought it."""
    one, two = Progress(Position()), Progress(Position())
    inbox, both = inbox_of(one, two)
    first, second = (Route((reader,), seed=n) for n, reader in enumerate(both.readers, 1))
    taken(inbox, first, message(1))
    taken(inbox, second, message(2))
    inbox.receive([message(3)], lambda topic, ids: both, 0.0, 0.0)

    def again(packet_id: int, **more: Any) -> list[Route]:
        found = message(packet_id, dup=True, **more)
        return [
            route
            for route, _ in inbox.receive([found], lambda topic, ids: both, 0.0, 0.0, others=lambda *_: (first, second))
        ]

    two.missing = {2}
    assert [len(again(packet_id)) for packet_id in (1, 3)] == [0, 0]
    (way,) = again(2)
    assert way.readers == second.readers
    assert (inbox.counters.redelivered, again(1, payload=b"new")) == (2, [both])


def test_a_route_of_one_topic_is_not_that_of_others_that_came_by_the_same_subscription() -> None:
    inbox, route = inbox_of(Progress(Position()))
    routes = {"a": Route(route.readers, 3, of_topic=True), "b": Route((), 3, of_topic=True)}
    ids = (3,)
    read = [Publish(topic, topic.encode(), subscription_ids=ids) for topic in "aba"]
    run = PublishRun(["a", "b", "a"], [b"a", b"b", b"a"], ids)
    for messages in (read, [run]):
        ((found, batch),) = inbox.receive(messages, lambda topic, ids: routes[topic], 0.0, 0.0)
        assert (found, batch.payloads) == (routes["a"], [b"a", b"a"])


def test_a_removed_flow_holds_no_acknowledgement_up() -> None:
    stays, goes = Progress(Position()), Progress(Position())
    inbox, route = inbox_of(stays, goes)
    taken(inbox, route, message(1))
    stays.committed = stays.position()
    assert inbox.due() == []
    inbox.remove_flow(goes)
    assert inbox.due() == [(1, 1)]


def test_a_new_flow_starts_at_what_arrives_next_with_the_holes_it_is_given() -> None:
    inbox, route = inbox_of(Progress(Position()))
    taken(inbox, route, message(1), message(2))
    late, heir = Progress(Position()), Progress(Position())
    heir.missing = {1}
    for flow in (late, heir):
        inbox.add_flow(flow)
    assert [flow.position() for flow in (late, heir)] == [Position(2), Position(2, frozenset([1]))]
    assert (late.takes(1), heir.takes(1), heir.takes(1)) == (False, True, False)


def test_a_message_that_nobody_takes_is_counted_and_acknowledged() -> None:
    inbox = Inbox()
    taken(inbox, NOWHERE, message(1), Publish("t", b"x"))
    assert (inbox.counters.unrouted, inbox.due()) == (2, [(1, 1)])


def test_bytes_that_wait_for_a_commit_are_known() -> None:
    flow = Progress(Position())
    inbox, route = inbox_of(flow)
    taken(inbox, route, message(1, b"123"), message(2, b"45"))
    assert inbox.uncommitted_bytes == 5 + 2 * MESSAGE_BYTES
    flow.committed = Position(1)
    inbox.due()
    assert inbox.uncommitted_bytes == 2 + MESSAGE_BYTES
    inbox.connection_lost()
    assert (inbox.uncommitted_bytes, inbox.due()) == (0, [])


def test_an_equal_message_of_another_quality_of_service_is_another() -> None:
    flow = Progress(Position())
    inbox, route = inbox_of(flow)
    taken(inbox, route, message(7))
    flow.committed = flow.position()
    inbox.due()
    assert taken(inbox, route, message(7, qos=2, dup=True)) == 1
    assert inbox.counters.redelivered == 0


def test_what_is_left_to_the_broker_is_not_taken_for_an_equal_message_when_it_comes_again() -> None:
    """Its packet id was free: the broker had the answer to what stood under it."""
    flow = Progress(Position())
    inbox, route = inbox_of(flow)
    assert taken(inbox, route, message(1), message(2), message(3)) == 3
    flow.committed = flow.position()
    inbox.due()
    inbox.leave([message(1), message(2, dup=True), Publish("t", b"x"), PublishRun(["t"] * 3, [b"x"] * 3, ())])
    assert inbox.counters.left == 4, "of QoS 0"
    restarted, route = inbox_of(Progress(flow.committed))
    restarted.table.load(inbox.table.take_dirty().items())
    restarted.resume()
    assert taken(restarted, route, *(message(n, dup=True) for n in (1, 2, 3))) == 1
    assert restarted.counters.ambiguous == 2


def test_a_broker_that_delivers_again_without_dup_is_known_by_the_packet_id_that_it_cannot_have_used_again() -> None:
    flow = Progress(Position())
    inbox, route = inbox_of(flow)
    assert taken(inbox, route, message(1), message(2)) == 2
    inbox.connection_lost()
    assert taken(inbox, route, message(1), message(2)) == 0, "neither is acknowledged"
    assert (inbox.counters.without_dup, inbox.counters.redelivered, inbox.counters.ambiguous) == (2, 2, 0)
    flow.commit(flow.position())
    assert inbox.due() == [(1, 1), (2, 1)]
    assert taken(inbox, route, message(1)) == 1, "the broker may have the answer, and the same value is a new message"
    assert taken(inbox, route, message(2, b"another")) == 1
    assert inbox.counters.without_dup == 2


def test_after_a_restart_dup_is_not_needed_for_what_no_commit_had_covered() -> None:
    inbox, route = inbox_of(Progress(Position()))
    taken(inbox, route, message(1), message(2))
    restarted, route = inbox_of(Progress(Position(1)))
    restarted.table.load(inbox.table.take_dirty().items())
    restarted.resume()
    assert taken(restarted, route, message(2)) == 1, "the flow does not have it: it is taken under its number"
    assert (restarted.next_index, restarted.counters.without_dup) == (3, 1)
    assert taken(restarted, route, message(1)) == 1, "it was committed, so the answer may have been sent: a new one"


def test_of_a_read_that_failed_all_come_again_and_none_is_acknowledged() -> None:
    flow, read = Progress(Position()), [message(1), message(2), Publish("t", b"x")]
    inbox, route = inbox_of(flow)
    assert taken(inbox, route, message(9)) == 1
    taken(inbox, route, *read)
    inbox.take_back(read)
    assert (inbox.counters.untaken, inbox.counters.untaken_qos_0) == (3, 1)
    flow.commit(flow.position())
    assert inbox.due() == [(9, 1)], "what came before is"
    inbox.connection_lost()
    assert taken(inbox, route, message(1, dup=True), message(2, dup=True)) == 2
    inbox.take_back(read[:2])
    inbox.connection_lost()
    assert taken(inbox, route, message(1, dup=True), message(2, dup=True)) == 2, "a second time, too"
    flow.commit(flow.position())
    assert inbox.due() == [(1, 1), (2, 1)]
