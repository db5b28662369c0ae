"""Which sources a message is for: by the subscription that brought it (MQTT 5), else by its topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import xxhash

from edgert.core.batch import RawBatch
from edgert.core.text.topic_template import MAX_KNOWN_LENGTH
from edgert.mqtt.topics import TopicTrie
from edgert.runtime.instance.instance import Instance
from gateway.ingest.inbox import NOWHERE, Reader, Route
from gateway.ingest.input_counters import InboxCounters
from gateway.ingest.subscriptions import SubscribedSource, Subscriptions

CACHED_TOPICS = 50_000
MAX_KNOWN_IDS = 8
"""The route of a message by more subscriptions, or of a longer topic, is not kept: others choose both as they like."""


class Routes:
    """To be told of each change of the subscriptions (`rebuild`)."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self.subscriptions, self.most = subscriptions, CACHED_TOPICS
        self.on_newer: Callable[[int], None] = lambda number: None
        """Told of an identifier that only a newer database can have given, so that the subscriptions are lost."""
        self.rebuild()

    def rebuild(self) -> None:
        """After a change of sources, or of what identifiers mean."""
        self.kept: dict[object, Route] = {}
        """Routes by identifiers, by topic, or by both where a topic's route depends on how it came."""
        self.shared: dict[tuple[tuple[Reader, ...], int, bool], Route] = {}
        self._trie: TopicTrie[SubscribedSource] | None = None
        """Made when a message needs it: each deployment begins it anew twice, and MQTT 5 seldom asks."""

    def _sources(self, topic: str) -> Iterable[SubscribedSource]:
        """Sources whose filters match."""
        if self._trie is None:
            self._trie = TopicTrie()
            for source in self.subscriptions.all:
                self._trie.add(source.filter, source)
        return self._trie.match(topic)

    def by_topic(self, topic: str, _ids: tuple[int, ...] = ()) -> Route:
        """Returns the route of a message without identifiers, or with identifiers that mean nothing."""
        return self.kept.get(topic) or self._keep(topic, self._as_route(self._sources(topic), 0), topic)

    def by_id(self, topic: str, ids: tuple[int, ...]) -> Route:
        """Returns the route of a message that came by the subscriptions with `ids`. What a broker still has under
        identifiers that flows have left by a new version, or that nobody knows any more, goes by its topic too."""
        if not ids:
            return self.by_topic(topic)
        found = self.kept.get(ids) or self.kept.get((topic, ids))
        if found is not None:
            return found
        subscriptions = self.subscriptions
        seed = ids[0] if len(ids) == 1 else _seed_of(tuple(sorted(ids)))
        known = subscriptions.known(ids)
        unknown = set(ids).difference(known)
        if unknown and not subscriptions.lost and subscriptions.is_newer(max(unknown)):
            self.on_newer(max(unknown))
        if unknown and subscriptions.lost:
            return self._keep((topic, ids), self._as_route(self._sources(topic), seed, of_topic=True), topic, ids)
        sources = dict.fromkeys(source for number in known for source in subscriptions.readers(topic, number))
        of_topic = not subscriptions.left.keys().isdisjoint(ids)
        route = self._as_route(sources, seed, of_topic=of_topic)
        return self._keep((topic, ids), route, topic, ids) if of_topic else self._keep(ids, route, ids=ids)

    def others(self, topic: str, ids: tuple[int, ...]) -> Iterator[Route]:
        """Routes by which a message may have come that is delivered again in another version of MQTT. By another
        identifier it is another copy, so with one only the route without any. With several also what it was to an
        earlier version of the gateway, which took them in the order in which they came."""
        if ids:
            yield self.by_topic(topic)
            if len(ids) > 1:
                known = self.by_id(topic, ids)
                yield Route(known.readers, _seed_of(ids), known.of_topic)
            return
        numbers = self.subscriptions.covering(topic)
        yield from (self.by_id(topic, (number,)) for number in numbers)
        if len(numbers) > 1:
            yield self.by_id(topic, numbers)

    def _keep(self, key: object, route: Route, topic: str = "", ids: tuple[int, ...] = ()) -> Route:
        """`topic`, `ids`: those in the key."""
        if len(topic) <= MAX_KNOWN_LENGTH and len(ids) <= MAX_KNOWN_IDS:
            if len(self.kept) >= self.most:
                self.kept.clear()
            self.kept[key] = route
        return route

    def _as_route(self, sources: Iterable[SubscribedSource], seed: int, of_topic: bool = False) -> Route:
        """One route object per set of readers, so that their messages share a batch."""
        readers = tuple(s.reader for s in sources)
        if not readers and not seed:
            return NOWHERE
        if len(self.shared) >= self.most:
            self.shared.clear()  # each set of identifiers has a seed of its own
        return self.shared.setdefault((readers, seed, of_topic), Route(readers, seed, of_topic))


def entries(
    batches: Iterable[tuple[Route, RawBatch]], counters: InboxCounters
) -> Iterator[tuple[Instance, int, RawBatch]]:
    """(instance, its only input, batch) of what flows take; what comes for a reader of no flow goes to that."""
    for route, batch in batches:
        for reader in route.readers:
            if not (batch.owed or reader.progress.has_room(batch.size)):
                if first := next(iter(reader.copies), reader.instance):
                    first.delivery.no_room += len(batch)
            elif reader.copies:
                for instance, part in reader.divide(batch):
                    yield instance, 0, part
            elif reader.instance is not None:
                yield reader.instance, 0, batch
            elif reader.take_untrusted is not None:
                if len(route.readers) == 1:
                    counters.leave_out(batch)
                reader.take_untrusted(batch.payloads, batch.arrival)


def _seed_of(ids: tuple[int, ...]) -> int:
    """Returns a seed for a message that came by several subscriptions."""
    return xxhash.xxh3_64_intdigest(repr(ids).encode())
