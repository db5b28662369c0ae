"""What is subscribed, and who takes what is retained."""

from __future__ import annotations

import pytest

from edgert.core.checkpoint.position import Position
from edgert.runtime.checkpoint.progress import Progress
from gateway.ingest.inbox import Reader
from gateway.ingest.subscriptions import ALWAYS, NEVER, SubscribedSource, Subscriptions


def source(flow: str, topic_filter: str = "a/+", qos: int = 1, retained: bool = False) -> SubscribedSource:
    return SubscribedSource(flow, topic_filter, qos, Reader(Progress(Position()), None, retained))


def subscribe(made: Subscriptions, by_id: bool = True, token: int = 1) -> list[tuple[str, int, int]]:
    """One round as the ingest makes it; (filter, QoS, retain handling) of what is sent."""
    wanted = made.wanted(by_id)
    sending = made.unsent(wanted)
    made.sent = wanted
    if sending:
        made.asked(token, made.open(sending, by_id))
    return [(s.filter, s.qos, s.retain_handling) for s in sending]


def test_nothing_is_sent_twice_on_a_connection_and_all_on_the_next() -> None:
    made = Subscriptions()
    made.swap((), [source("f")])
    assert subscribe(made) == [("a/+", 1, NEVER)]
    assert subscribe(made) == []
    made.connected()
    assert subscribe(made) == [("a/+", 1, NEVER)]


@pytest.mark.parametrize("by_id", [True, False])
def test_a_filter_is_sent_again_when_a_flow_wants_more_of_it(by_id: bool) -> None:
    made = Subscriptions()
    made.swap((), [source("f", qos=0)])
    subscribe(made, by_id)
    made.swap((), [source("g", qos=1)])
    assert subscribe(made, by_id) == [("a/+", 1, NEVER)]


@pytest.mark.parametrize("by_id", [True, False])
def test_retained_messages_are_asked_for_once_per_flow_and_given_to_it_alone(by_id: bool) -> None:
    made = Subscriptions()
    first, second, other = source("f", retained=True), source("g", retained=True), source("h")
    made.swap((), [first])
    assert subscribe(made, by_id) == [("a/+", 1, ALWAYS)]
    before = made.pending
    assert made.answered(1, ())
    assert (before, made.pending) == (True, False)
    assert subscribe(made, by_id) == []
    made.swap((), [second, other])
    assert subscribe(made, by_id, 2) == [("a/+", 1, ALWAYS)]
    assert (first.reader.open, second.reader.open) == (False, True)
    made.answered(2, ())
    made.connected()
    assert subscribe(made, by_id) == [("a/+", 1, NEVER)]


def test_who_was_given_retained_messages_is_known_after_a_restart() -> None:
    before = Subscriptions()
    before.swap((), [source("f", retained=True)])
    subscribe(before)
    before.answered(1, ())
    after = Subscriptions()
    after.load(before.dump())
    made, new = source("f", retained=True), source("new", retained=True)
    after.swap((), [made, new])
    assert after.ids == before.ids
    after.session_lost()
    assert (made.reader.open, new.reader.open) == (False, True)
    assert subscribe(after) == [("a/+", 1, ALWAYS)]
    assert (made.reader.open, new.reader.open) == (False, True)


def test_what_is_left_of_a_session_that_goes_on_still_comes_in() -> None:
    """The broker may not have sent all that is retained when the gateway was killed; it is not asked for it again."""
    before = Subscriptions()
    before.swap((), [source("f", retained=True)])
    subscribe(before)
    before.answered(1, ())
    after, made = Subscriptions(), source("f", retained=True)
    after.load(before.dump())
    after.swap((), [made])
    assert subscribe(after) == [("a/+", 1, NEVER)]
    assert made.reader.open


def test_an_answer_that_never_came_or_a_refusal_leaves_a_flow_waiting() -> None:
    made = Subscriptions()
    made.swap((), [source("f", retained=True)])
    subscribe(made)
    made.connected()
    assert subscribe(made) == [("a/+", 1, ALWAYS)]
    assert not made.answered(1, {"a/+"})
    assert subscribe(made) == [("a/+", 1, ALWAYS)]


def test_a_flow_that_is_removed_and_deployed_again_is_a_new_one_and_a_new_version_is_not() -> None:
    made, old = Subscriptions(), source("f", retained=True)
    made.swap((), [old])
    subscribe(made)
    made.answered(1, ())
    version = source("f", retained=True)
    made.swap([old], [version])
    assert subscribe(made) == []
    made.swap([version], ())
    made.forget("f")
    made.swap((), [source("f", retained=True)])
    assert subscribe(made) == [("a/+", 1, ALWAYS)]


def test_without_identifiers_filters_are_merged_and_the_merged_one_is_asked_and_answered() -> None:
    made = Subscriptions()
    made.swap((), [source("f", "a/b", retained=True), source("g", "a/+", qos=0)])
    assert subscribe(made, by_id=False) == [("a/+", 1, ALWAYS)]
    assert not made.answered(1, {"a/+"}), "the merged filter was refused, and with it that of the source"
    assert subscribe(made, by_id=False) == [("a/+", 1, ALWAYS)]
    assert made.answered(1, ())
    assert subscribe(made, by_id=False) == []


@pytest.mark.parametrize("by_id", [True, False])
def test_the_topic_of_our_own_is_asked_for_its_last_value_once_per_connection(by_id: bool) -> None:
    made = Subscriptions(source("", "$SYS/dropped", qos=0, retained=True))
    made.swap((), [source("f")])
    for _ in range(2):
        assert subscribe(made, by_id) == [("a/+", 1, NEVER), ("$SYS/dropped", 0, ALWAYS)]
        assert not made.pending, "no flow waits for it"
        assert subscribe(made, by_id) == []
        made.connected()
    assert "$SYS/dropped" in made.ids, "known after a restart, to be unsubscribed when it is not wanted any more"


@pytest.mark.parametrize("by_id", [True, False])
def test_a_flow_that_has_the_topic_of_our_own_too_brings_it_at_the_qos_that_it_wants(by_id: bool) -> None:
    made, flow = Subscriptions(source("", "$SYS/dropped", qos=0, retained=True)), source("f", "$SYS/dropped")
    made.swap((), [flow])
    assert subscribe(made, by_id) == [("$SYS/dropped", 1, ALWAYS)]
    assert not flow.reader.open or not flow.reader.retained
    made.swap([flow], [])
    assert subscribe(made, by_id) == [("$SYS/dropped", 0, NEVER)]


def test_without_identifiers_a_wider_filter_brings_the_topic_of_our_own() -> None:
    made, flow = Subscriptions(source("", "$SYS/dropped", qos=0, retained=True)), source("f", "$SYS/#")
    subscribe(made, by_id=False)
    made.swap((), [flow])
    assert subscribe(made, by_id=False) == [("$SYS/#", 1, NEVER)]
    assert set(made.sent) == {"$SYS/#"}
    made.connected()
    assert subscribe(made, by_id=False) == [("$SYS/#", 1, ALWAYS)]
    made.swap([flow], ())
    assert subscribe(made, by_id=False) == [("$SYS/dropped", 0, NEVER)]


# -- identifiers that flows have left


def flows_of(made: Subscriptions, topic: str, topic_filter: str, number: int) -> list[str]:
    """Who gets a message on `topic` that came under the identifier."""
    assert made.filter_of(number) == topic_filter
    return sorted(f"{s.flow} {s.filter}" for s in made.readers(topic, number))


def change(made: Subscriptions, flow: str, *filters: str) -> dict[str, int]:
    """To a version that reads these; identifiers from then on."""
    made.swap([s for s in made.sources if s.flow == flow], [source(flow, f) for f in filters])
    made.wanted(True)
    return dict(made.ids)


def test_an_identifier_that_a_flow_has_left_is_nobody_elses_and_brings_it_what_its_new_filters_match() -> None:
    made = Subscriptions()
    change(made, "g", "a/+")
    first = change(made, "f", "a/+")["a/+"]
    ids = change(made, "f", "a/b", "c")
    assert first not in ids.values()
    assert flows_of(made, "a/b", "a/+", first) == ["f a/b", "g a/+"]
    assert flows_of(made, "a/x", "a/+", first) == ["g a/+"]
    assert flows_of(made, "a/b", "a/+", ids["a/+"]) == ["g a/+"]
    change(made, "g", "+/b")
    assert flows_of(made, "a/b", "a/+", first) == ["f a/b", "g +/b"]
    assert flows_of(made, "a/b", "a/+", ids["a/+"]) == ["g +/b"]
    assert flows_of(made, "a/b", "a/b", ids["a/b"]) == ["f a/b"]
    made.forget("f")
    assert flows_of(made, "a/b", "a/+", first) == ["g +/b"]


def test_of_copies_by_two_filters_that_one_replaces_one_is_taken() -> None:
    made = Subscriptions()
    ids = change(made, "f", "a/+", "+/b", "kept")
    change(made, "f", "#", "kept")
    got = [flows_of(made, "a/b", f, ids[f]) for f in ("+/b", "a/+")]
    assert sorted(got) == [[], ["f #"]]
    assert flows_of(made, "a/x", "a/+", ids["a/+"]) == flows_of(made, "x/b", "+/b", ids["+/b"]) == ["f #"]
    assert flows_of(made, "kept", "kept", ids["kept"]) == ["f kept"], "it came for that source"


def test_a_flow_that_comes_back_to_a_filter_takes_once_what_had_come_by_it() -> None:
    made = Subscriptions()
    first = change(made, "f", "a/+")["a/+"]
    second = change(made, "f", "+/b")["+/b"]
    third = change(made, "f", "a/+", "#")
    assert len({first, second, *third.values()}) == 4
    assert flows_of(made, "a/b", "a/+", first) == ["f a/+"]
    assert flows_of(made, "a/b", "+/b", second) == ["f #", "f a/+"]


def test_what_came_for_others_by_a_filter_that_a_flow_reads_now_is_theirs_alone() -> None:
    made = Subscriptions()
    first = change(made, "g", "+/b")["+/b"]
    change(made, "other", "+/b")
    mine = change(made, "f", "a/+")["a/+"]
    second = change(made, "other", "#")["+/b"]
    now = change(made, "f", "+/b")["+/b"]
    assert len({first, second, mine, now}) == 4
    assert flows_of(made, "a/b", "a/+", mine) == ["f +/b"]
    assert flows_of(made, "a/b", "+/b", first) == ["g +/b", "other #"]
    assert flows_of(made, "a/b", "+/b", second) == ["g +/b"]
    assert flows_of(made, "a/b", "+/b", now) == ["f +/b", "g +/b"]
    assert flows_of(made, "x/b", "+/b", second) == ["f +/b", "g +/b"], "by a/+ it cannot have come"
    change(made, "f", "c", "a/b")
    assert flows_of(made, "a/b", "a/+", mine) == ["f a/b"]
    assert flows_of(made, "a/b", "+/b", second) == ["g +/b"]
    assert flows_of(made, "a/b", "+/b", now) == ["f a/b", "g +/b"]


def test_what_comes_by_the_subscription_of_a_removed_flow_is_for_the_next_that_reads_its_filter() -> None:
    """The broker does not know of the later versions, so it came by nothing else."""
    made = Subscriptions()
    old = change(made, "f", "a/+")["a/+"]
    made.forget("f")
    made.sources.clear()
    change(made, "f", "#")
    assert change(made, "f", "a/+")["a/+"] != old
    assert flows_of(made, "a/b", "a/+", old) == ["f a/+"]


def test_what_identifiers_meant_is_known_after_a_restart_also_if_a_change_was_not_saved() -> None:
    made = Subscriptions()
    ids = change(made, "f", "a/+")
    before = made.dump()
    change(made, "f", "#")
    for saved in (before, made.dump()):
        after = Subscriptions()
        after.load(saved)
        again = change(after, "f", "#")
        assert flows_of(after, "a/b", "a/+", ids["a/+"]) == ["f #"]
        assert again["#"] != ids["a/+"]
        assert "a/+" in after.subscribed, "to be taken back"
    text = after.dump()
    after.load(text)
    assert after.dump() == text
    after.session_lost()
    assert (after.old, after.left) == ({}, {}), "the broker holds nothing of it any more"


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"a/+": 7}', '{"ids": {"a": "b"}, "retained": {}}', '{"ids": {}, "retained": 3}']
)
def test_what_is_damaged_is_refused_as_a_whole(text: str) -> None:
    made = Subscriptions()
    made.load('{"ids": {"a/+": 7}}')
    with pytest.raises(ValueError, match=r"."):
        made.load(text)
    assert made.ids == {"a/+": 7}


@pytest.mark.parametrize(
    ("number", "topic", "flows"), [(1, "a/t", "fg"), (1, "a/u", "g"), (2, "a/t", "h"), (2, "b/t", "fh")]
)
def test_late_messages_under_identifiers_that_were_given_up_go_to_whom_they_came_for(
    number: int, topic: str, flows: str
) -> None:
    """The example at the top of `gateway/ingest/subscriptions.py`."""
    made = Subscriptions()
    before = source("f", "a/#")
    made.swap((), [before, source("g", "a/#"), source("h", "+/t")])
    subscribe(made)
    made.swap([before], [source("f", "+/t")])
    subscribe(made)
    assert made.ids == {"a/#": 3, "+/t": 4}
    assert sorted(one.flow for one in made.readers(topic, number)) == list(flows)
