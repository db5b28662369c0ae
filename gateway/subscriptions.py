"""What is subscribed at the sensors' broker, and which sources still wait for what is retained there.

A broker sends what it has retained with each SUBSCRIBE (with MQTT 5: unless told not to), as new messages that nothing
tells from others. So that each is counted once, a source takes them only as the answer to the first subscription that
was made for it, and that this was answered is remembered over restarts. What is retained later comes live as well.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from edgert.mqtt.packets import Subscription
from edgert.mqtt.topics import covers, merge_filters
from edgert.operators.division import CopiesByTopic
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.inbox import Reader

NEVER, ALWAYS = 2, 0
"""Retain handling of MQTT 5 (section 3.8.3.1). In 3.1.1 a broker cannot be told: `NEVER` only says what we want."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One source of one flow, as the ingest sees it."""

    flow: str
    filter: str
    qos: int
    reader: Reader


def sources_of(run: FlowRun) -> list[Source]:
    """What a flow reads."""
    sources = []
    for first, copies in run.sources():
        topic, qos, retained = (first.parameters[name] for name in ("topic", "qos", "retained"))
        reader = Reader(run.progress, copies[0], retained)
        if len(copies) > 1:
            reader.copies, reader.copy_of = copies, CopiesByTopic(topic, len(copies))
        sources.append(Source(run.flow.name, topic.filter, qos, reader))
    return sources


Asked = list[tuple[Source, str]]
"""Sources that wait for retained messages, each with the filter whose subscription brings them."""


class Subscriptions:
    """Bookkeeping only: the ingest sends and saves."""

    def __init__(self, watch: Source | None = None) -> None:
        self.sources: list[Source] = []
        self.watch = watch
        """A topic without wildcards of which the gateway itself wants the last value at each connection, and what
        comes later: it is no flow's, and changes nothing for flows that read it too."""
        self.ids: dict[str, int] = {}
        """Subscription identifier by filter; kept for good, since redeliveries carry the old ones."""
        self.sent: dict[str, Subscription] = {}
        """On this connection, by filter."""
        self._had: dict[str, set[str]] = {}
        """Flow → filters of its sources whose retained messages it was given."""
        self._asked: dict[int, Asked] = {}
        """Token of a subscription that is not answered → for whom retained messages were asked."""

    def load(self, text: str) -> None:
        """What `dump` gave; empty at the first start. An older version kept nothing but the identifiers."""
        saved = json.loads(text) if text else {}
        old = not isinstance(saved.get("ids"), dict)  # "ids" may be a filter
        self.ids = saved if old else saved["ids"]
        self._had = {} if old else {flow: set(filters) for flow, filters in saved["retained"].items()}

    def dump(self) -> str:
        """To be saved before a new identifier is sent, and after an answer."""
        return json.dumps({"ids": self.ids, "retained": {flow: sorted(had) for flow, had in self._had.items()}})

    def swap(self, remove: Collection[Source], add: Iterable[Source]) -> None:
        """Other sources. A flow that has none left is forgotten: deployed again, it is a new one."""
        self.sources = [s for s in self.sources if s not in remove] + list(add)
        for flow in {s.flow for s in remove} - {s.flow for s in self.sources}:
            self._had.pop(flow, None)

    @property
    def all(self) -> list[Source]:
        """Of flows, and our own."""
        return [*self.sources, self.watch] if self.watch else self.sources

    # -- the connection

    def connected(self) -> None:
        """Nothing is known to be sent on a new connection."""
        self.sent, self._asked = {}, {}

    def session_lost(self) -> None:
        """Every subscription is new to the broker, so what it has retained comes again."""
        for source in self.sources:
            source.reader.open = self._waits(source)

    def wanted(self, by_id: bool) -> dict[str, Subscription]:
        """By filter. 3.1.1 (`by_id` false) knows no identifiers, so there filters are merged until none overlap."""
        qos: dict[str, int] = {}
        for source in self.sources:
            qos[source.filter] = max(qos.get(source.filter, 0), source.qos)
        waited_for = {s.filter for s in self.sources if self._waits(s)}
        if watch := self.watch:
            self._id(watch.filter)  # also where it is not sent: what has one is unsubscribed when it is not wanted
            if not any(self.serves_watch(f, by_id) for f in self.sent):
                waited_for.add(watch.filter)
        if by_id:
            if watch:
                qos.setdefault(watch.filter, watch.qos)
            return {
                f: Subscription(f, q, self._id(f), retain_handling=ALWAYS if f in waited_for else NEVER)
                for f, q in qos.items()
            }
        merged = dict.fromkeys(merge_filters(qos), max(qos.values(), default=0))
        if watch and not any(covers(f, watch.filter) for f in merged):
            merged[watch.filter] = watch.qos
        return {
            f: Subscription(f, q, retain_handling=ALWAYS if any(covers(f, w) for w in waited_for) else NEVER)
            for f, q in merged.items()
        }

    def serves_watch(self, topic_filter: str, by_id: bool) -> bool:
        """Whether the subscription to `topic_filter` is the one by which the watched topic comes."""
        if not self.watch:
            return False
        return topic_filter == self.watch.filter if by_id else covers(topic_filter, self.watch.filter)

    def unsent(self, wanted: dict[str, Subscription]) -> list[Subscription]:
        """What the broker does not have yet, or has otherwise, or is to send the retained messages of."""
        return [
            s
            for f, s in wanted.items()
            if (has := self.sent.get(f)) is None
            or (has.qos, has.subscription_id) != (s.qos, s.subscription_id)
            or s.retain_handling == ALWAYS
        ]

    def open(self, sending: Collection[Subscription], by_id: bool) -> Asked:
        """To be called just before `sending`: whoever waits for retained messages takes what comes now, and nobody
        else to whom it may come again. Gives those who wait."""
        answering = [s.filter for s in sending if s.retain_handling == ALWAYS]
        waiting: Asked = []
        for source in self.sources:
            own = [f for f in answering if (f == source.filter if by_id else covers(f, source.filter))]
            if own or not by_id:  # 3.1.1 brings what is retained with whatever is sent
                source.reader.open = self._waits(source)
            if own and source.reader.open:
                waiting.append((source, own[0]))
        return waiting

    def asked(self, token: int, waiting: Asked) -> None:
        """What `open` gave was sent as the subscription with `token`."""
        if waiting:
            self._asked[token] = waiting

    def answered(self, token: int, refused: Collection[str]) -> bool:
        """The broker has answered; whether there is something to save."""
        given = [source for source, topic_filter in self._asked.pop(token, ()) if topic_filter not in refused]
        for source in given:
            self._had.setdefault(source.flow, set()).add(source.filter)
        return bool(given)

    @property
    def pending(self) -> bool:
        """Whether retained messages were asked for and the broker has not answered: nothing else is to be asked
        meanwhile, or it could not be told for whom they come."""
        return bool(self._asked)

    def _waits(self, source: Source) -> bool:
        return source.reader.retained and source.filter not in self._had.get(source.flow, ())

    def _id(self, topic_filter: str) -> int:
        if topic_filter not in self.ids:
            self.ids[topic_filter] = max(self.ids.values(), default=0) + 1
        return self.ids[topic_filter]
