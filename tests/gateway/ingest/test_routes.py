"""Routes are remembered within a bound of bytes, too: publishers choose the topics, a broker the identifiers."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from edgert.core.checkpoint.position import Position
from edgert.mqtt.topics import TopicTrie
from edgert.runtime.checkpoint.progress import Progress
from gateway.ingest.inbox import Reader
from gateway.ingest.routes import Routes
from gateway.ingest.subscriptions import SubscribedSource, Subscriptions


def made(**lost: bool) -> Routes:
    subscriptions = Subscriptions()
    subscriptions.swap((), [SubscribedSource("f", "a/#", 1, Reader(Progress(Position()), None, False))])
    subscriptions.lost = bool(lost)
    return Routes(subscriptions)


def long_topics() -> Iterator[tuple[str, tuple[int, ...]]]:
    for n in range(200):
        yield f"a/{n:060000}", ()


def many_identifiers() -> Iterator[tuple[str, tuple[int, ...]]]:
    for n in range(100):
        yield "a/b", tuple(range(n * 2_000 + 1, n * 2_000 + 2_001))


def both() -> Iterator[tuple[str, tuple[int, ...]]]:
    for n in range(200):
        yield f"a/{n:060000}", (n + 1,)


@pytest.mark.parametrize(
    ("routes", "comes"),
    [(made(), long_topics), (made(), many_identifiers), (made(lost=True), both), (made(lost=True), many_identifiers)],
)
def test_neither_long_topics_nor_long_lists_of_identifiers_are_remembered(routes: Routes, comes: object) -> None:
    assert callable(comes)
    tracemalloc.start()
    try:
        for topic, ids in comes():
            assert routes.by_id(topic, ids).readers or ids
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2 << 20


def test_endless_sets_of_identifiers_stay_within_the_bound() -> None:
    of = made()
    of.most = 100
    for n in range(1_000):
        of.by_id("a/b", (n + 1, n + 2))
        of.by_id("a/b", tuple(range(n + 1, n + 100)))
    assert len(of.kept) <= 100
    assert len(of.shared) <= 100


def test_identifiers_of_no_subscription_cost_no_search_each(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    of = made()
    of.subscriptions.ids.update({"a/#": 7, "c": 10_000})  # so all others were given here once
    readers = of.subscriptions.readers

    def counted(topic: str, number: int) -> list[SubscribedSource]:
        asked.append(number)
        return readers(topic, number)

    monkeypatch.setattr(of.subscriptions, "readers", counted)
    assert of.by_id("a/b", (*range(1, 10_000), *range(1, 10_000))).readers
    assert asked == [7]


def test_what_is_short_is_looked_up_once() -> None:
    of = made()
    assert of.by_topic("a/b") is of.by_topic("a/b")
    assert of.by_id("a/b", (1, 2)) is of.by_id("a/b", (1, 2))
    assert of.by_topic("a/" + "b" * 300) is of.by_topic("a/" + "c" * 300), "messages of one flow share a batch"


def test_a_change_of_flows_looks_at_no_filter_until_a_message_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[str] = []
    whole = TopicTrie.add

    def add(trie: TopicTrie[SubscribedSource], text: str, value: SubscribedSource) -> None:
        added.append(text)
        whole(trie, text, value)

    monkeypatch.setattr(TopicTrie, "add", add)
    its = made()
    for _ in range(10):
        its.rebuild()
    assert added == []
    assert len(its.by_topic("a/b").readers) == len(its.by_topic("a/c").readers) == 1
    assert added == ["a/#"]
