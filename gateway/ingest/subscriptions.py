"""Subscriptions at the sensors' broker, and the sources that still wait for retained messages.

A broker sends what it has retained with each SUBSCRIBE (with MQTT 5: unless told not to), as new messages that nothing
tells from others. So that each is counted once, a source takes them only as the answer to the first subscription that
was made for it, and that this was answered is remembered over restarts. What is retained later comes live as well.

A broker may hold a message for long, under the identifier of the subscription that brought it. So an identifier never
gets another meaning. Flows f and g read `a/#` under identifier 1, and flow h reads `+/t` under 2. A new version of f
reads `+/t` instead. Both filters get new identifiers, and late messages under the old ones go to

    1, on a/t    g, and f, since its new filter matches
    1, on a/u    g
    2, on a/t    h; the same message comes for f under 1
    2, on b/t    h and f
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from edgert.mqtt.packets.packets import Subscription
from edgert.mqtt.topics import covers, merge_filters
from edgert.operators.state.partitioning import CopiesByTopic
from edgert.runtime.flow_run import FlowRun
from gateway.ingest.inbox import Reader

HIGH_IDS: Final = 1 << 27
"""Half of the identifiers that MQTT has."""
NEVER, ALWAYS = 2, 0
"""Retain handling of MQTT 5 (section 3.8.3.1). In 3.1.1 a broker cannot be told: `NEVER` only says what we want."""


@dataclass(frozen=True, slots=True, eq=False)
class SubscribedSource:
    """One source of one flow, as the ingest sees it."""

    flow: str
    filter: str
    qos: int
    reader: Reader


def sources_of(run: FlowRun) -> list[SubscribedSource]:
    """The sources of a flow."""
    sources = []
    for first, copies in run.sources():
        topic, qos, retained = (first.parameters[name] for name in ("topic", "qos", "retained"))
        reader = Reader(run.progress, copies[0], retained)
        if len(copies) > 1:
            reader.copies, reader.copy_of = copies, CopiesByTopic(topic, len(copies))
        sources.append(SubscribedSource(run.flow.name, topic.filter, qos, reader))
    return sources


AwaitedRetained = list[tuple[SubscribedSource, str]]
"""Sources that wait for retained messages, each with the filter whose subscription brings them."""


class _Saved(msgspec.Struct, forbid_unknown_fields=True):
    """The stored part; see `Subscriptions`."""

    ids: dict[str, int] = {}
    retained: dict[str, dict[str, int]] = {}
    old: dict[int, str] = {}
    left: dict[int, dict[str, list[str]]] = {}
    read: dict[str, list[str]] = {}
    subscribed: list[str] = []
    lost: bool = False
    speaks_5: str = ""
    first: int = 1
    emptied: bool = False


LookUpTokens = Mapping[str, int]
"""Filter → token. The empty filter stands for all that are not named."""
FIRST: Final = 0
"""The token of a filter that has none."""


class LookUps:
    """The sources that were given the retained messages of their filters, by flow and filter.

    An operator behind a source may lose what it had of them: a new version begins it anew, or its checkpoint was
    damaged. The database keeps, in the transaction that does this, a token by flow and filter; retained messages that
    were given under another token are asked for again.
    """

    def __init__(self) -> None:
        self._tokens: dict[str, LookUpTokens] = {}
        self._given: dict[str, dict[str, int]] = {}
        """Flow → filter → the token under which its retained messages were given."""

    def load(self, given: Mapping[str, Mapping[str, int]]) -> None:
        """Loads the value of `dump`."""
        self._given = {flow: dict(filters) for flow, filters in given.items()}

    def dump(self) -> dict[str, dict[str, int]]:
        """Given tokens by flow and filter."""
        return {flow: dict(sorted(filters.items())) for flow, filters in self._given.items()}

    def begun(self, flow: str, tokens: LookUpTokens) -> None:
        """Notes the tokens that the database has of a flow."""
        self._tokens[flow] = tokens

    def waits(self, flow: str, topic_filter: str) -> bool:
        """True if the flow is to be given the retained messages of the filter."""
        return self._given.get(flow, {}).get(topic_filter) != self._token(flow, topic_filter)

    def give(self, flow: str, topic_filter: str) -> None:
        """Notes that the broker was asked for them, and has answered."""
        self._given.setdefault(flow, {})[topic_filter] = self._token(flow, topic_filter)

    def forget(self, flow: str) -> None:
        """The flow was removed: deployed again, it is a new one."""
        self._given.pop(flow, None)
        self._tokens.pop(flow, None)

    def _token(self, flow: str, topic_filter: str) -> int:
        tokens = self._tokens.get(flow, {})
        return tokens.get(topic_filter, tokens.get("", FIRST))


class Subscriptions:
    """Bookkeeping only: the ingest sends and saves."""

    def __init__(self, watch: SubscribedSource | None = None) -> None:
        self.sources: list[SubscribedSource] = []
        self.watch = watch
        """A topic without wildcards of which the gateway itself wants the last value at each connection, and what
        comes later: it is no flow's, and changes nothing for flows that read it too."""
        self.ids: dict[str, int] = {}
        """Subscription identifier by filter; kept, since redeliveries carry the old ones: no number is used twice."""
        self.old: dict[int, str] = {}
        """Filters of identifiers that are given up."""
        self.left: dict[int, dict[str, list[str]]] = {}
        """Identifier that is given up → flow → all filters that the flow read then."""
        self.read: dict[str, list[str]] = {}
        """Flow → the filters that it reads, or that it read when it last could."""
        self.subscribed: set[str] = set()
        """Filters that the session may have, also of earlier processes and of 3.1.1."""
        self.lost = False
        """The broker may send under identifiers that nobody knows any more. Then the topic says who reads it, though
        the copies of overlapping subscriptions cannot be told apart so."""
        self.speaks_5 = ""
        """Address of a broker that has spoken MQTT 5."""
        self._first = 1
        """No new identifier is less: those below may have been used, also at another broker."""
        self.emptied = False
        """True if the id table was emptied, which that does not remember itself."""
        self.sent: dict[str, Subscription] = {}
        """On this connection, by filter."""
        self._merged: dict[str, str] | None = None
        """In 3.1.1, by filter of a source the one that is subscribed for it; None since the sources have changed."""
        self.look_ups = LookUps()
        self._asked: dict[int, AwaitedRetained] = {}
        """Token of a subscription that is not answered → for whom retained messages were asked."""

    def load(self, text: str) -> None:
        """Loads the text of `dump`, empty at the first start. Raises ValueError for a damaged text, and changes
        nothing then."""
        try:
            saved = msgspec.json.decode(text or "{}", type=_Saved)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from None
        self.ids, self.old, self.left, self.read = saved.ids, saved.old, saved.left, saved.read
        self.subscribed = {*saved.subscribed, *saved.ids}
        self.lost, self.speaks_5 = saved.lost, saved.speaks_5
        self._first, self.emptied = saved.first, saved.emptied
        self.look_ups.load(saved.retained)

    def dump(self) -> str:
        """To be saved before anything is subscribed, and after an answer. The same as long as nothing changes."""
        saved = _Saved(
            self.ids, self.look_ups.dump(), self.old, self.left, self.read,
            sorted(self.subscribed), self.lost, self.speaks_5, self._first, self.emptied,
        )  # fmt: skip
        return msgspec.json.encode(saved).decode()

    def lose(self) -> None:
        """Records that the meaning of identifiers is lost, or of some of them. New ones begin where none was used, as
        good as certainly: none that the broker has may get another meaning."""
        self.lost, self._first = True, max(1 + secrets.randbelow(HIGH_IDS), self._first)

    def is_newer(self, number: int) -> bool:
        """True of an identifier above all that were given here: a newer database gave it, of which this is a copy from
        before."""
        return number >= self._next()

    def swap(self, remove: Collection[SubscribedSource], add: Iterable[SubscribedSource]) -> None:
        """Other sources. A flow that has none left may come back, and is known then."""
        self.sources = [s for s in self.sources if s not in remove] + list(add)
        self._merged = None
        filters: dict[str, set[str]] = {}
        for source in self.sources:
            filters.setdefault(source.flow, set()).add(source.filter)
        for flow, names in filters.items():
            reads = sorted(names)
            before = self.read.setdefault(flow, reads)
            if before != reads:
                self._leave(flow, before, reads)
                self.read[flow] = reads

    def forget(self, flow: str) -> None:
        """The flow was removed: deployed again, it is a new one."""
        self.look_ups.forget(flow)
        reads = self.read.pop(flow, [])
        for flows in self.left.values():
            flows.pop(flow, None)
        self.left = {number: flows for number, flows in self.left.items() if flows}
        self._give_up(f for f in reads if not any(f in others for others in self.read.values()))

    def _give_up(self, filters: Iterable[str]) -> None:
        """Gives up these filters. Messages under them that the broker still holds go to each flow by the filters that
        it reads now."""
        for topic_filter in filters:
            if number := self.ids.pop(topic_filter, 0):
                self.old[number] = topic_filter
                if self.read:
                    self.left[number] = dict(self.read)

    def _leave(self, flow: str, before: list[str], reads: list[str]) -> None:
        """`flow` has read the filters `before` and now `reads` others. So that what came for it until now can be told
        from what comes to others who read one of them, that one gets another identifier."""
        self._give_up([*before, *reads])
        for number, topic_filter in self.old.items():
            if topic_filter in before:
                self.left.setdefault(number, {}).setdefault(flow, before)

    def filter_of(self, number: int) -> str:
        """The filter that was subscribed with this identifier, empty if it is not known."""
        return next((f for f, n in self.ids.items() if n == number), "") or self.old.get(number, "")

    def known(self, ids: Iterable[int]) -> list[int]:
        """Identifiers, of `ids`, that were subscribed, each once."""
        known = {*self.ids.values(), *self.old}
        return [number for number in dict.fromkeys(ids) if number in known]

    def covering(self, topic: str) -> tuple[int, ...]:
        """Identifiers under which a message on `topic` may have come, those of now and old ones."""
        pairs = [*((n, f) for f, n in self.ids.items()), *self.old.items()]
        return tuple(sorted(n for n, f in pairs if covers(f, topic)))

    def readers(self, topic: str, number: int) -> list[SubscribedSource]:
        """Sources for which a message on `topic` came under an identifier: those of its filter, but of flows to which
        it came by others that they had then; and of flows that have left it those that read the topic by a filter that
        they did not have then. Where such a flow had several that brought it, one copy of several counts."""
        its, left = self.filter_of(number), self.left.get(number, {})
        by_others = {flow for flow, had in left.items() if its not in had and any(covers(f, topic) for f in had)}
        found = [source for source in self.all if source.filter == its and source.flow not in by_others]
        for flow, had in left.items():
            gone = [f for f in had if f not in self.read.get(flow, ()) and covers(f, topic)]
            if gone[:1] == [its]:
                new = (s for s in self.sources if s.flow == flow and s.filter not in had)
                found += [source for source in new if covers(source.filter, topic)]
        return found

    @property
    def all(self) -> list[SubscribedSource]:
        """Returns the subscriptions of flows, and our own."""
        return [*self.sources, self.watch] if self.watch else self.sources

    # -- the connection

    def connected(self) -> None:
        """Begins a new connection, on which nothing was sent yet."""
        self.sent, self._asked = {}, {}

    def session_lost(self) -> None:
        """Every subscription is new to the broker, so what it has retained comes again; and it holds nothing that came
        by an old one. The broker before may, if it comes back: so their identifiers stay used."""
        self._first = self._next()
        self.old, self.left, self.subscribed, self.lost = {}, {}, set(), False
        for source in self.sources:
            source.reader.open = self.waits(source)

    def wanted(self, by_id: bool) -> dict[str, Subscription]:
        """Subscriptions by filter, to be subscribed as soon as the result of `dump` is saved. 3.1.1 (`by_id` false)
        knows no identifiers, so there filters are merged until none overlap."""
        found = self._wanted(by_id)
        self.subscribed.update(found)
        return found

    def _wanted(self, by_id: bool) -> dict[str, Subscription]:
        qos: dict[str, int] = {}
        for source in self.sources:
            qos[source.filter] = max(qos.get(source.filter, 0), source.qos)
        waited_for = {s.filter for s in self.sources if self.waits(s)}
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
        merged = self._merged = merge_filters(qos) if self._merged is None else self._merged
        wanted = dict.fromkeys(sorted(merged.values()), max(qos.values(), default=0))
        answering = {merged[f] for f in waited_for if f in merged}
        if watch:
            by = next((f for f in wanted if covers(f, watch.filter)), watch.filter)
            wanted.setdefault(by, watch.qos)
            answering |= {by} if watch.filter in waited_for else set()
        return {f: Subscription(f, q, retain_handling=ALWAYS if f in answering else NEVER) for f, q in wanted.items()}

    def serves_watch(self, topic_filter: str, by_id: bool) -> bool:
        """True if the subscription to `topic_filter` is the one by which the watched topic comes."""
        if not self.watch:
            return False
        return topic_filter == self.watch.filter if by_id else covers(topic_filter, self.watch.filter)

    def unsent(self, wanted: dict[str, Subscription]) -> list[Subscription]:
        """Subscriptions that the broker does not have yet, has with other options, or is to answer with retained
        messages."""
        return [
            s
            for f, s in wanted.items()
            if (has := self.sent.get(f)) is None
            or (has.qos, has.subscription_id) != (s.qos, s.subscription_id)
            or s.retain_handling == ALWAYS
        ]

    def open(self, sending: Collection[Subscription], by_id: bool) -> AwaitedRetained:
        """Call this just before `sending`: whoever waits for retained messages takes what comes now, and nobody
        else to whom it may come again. Gives those who wait."""
        answering = {s.filter for s in sending if s.retain_handling == ALWAYS}
        waiting: AwaitedRetained = []
        for source in self.sources:
            own = source.filter if by_id else (self._merged or {}).get(source.filter, "")
            if own in answering or not by_id:  # 3.1.1 brings what is retained with whatever is sent
                source.reader.open = self.waits(source)
            if own in answering and source.reader.open:
                waiting.append((source, own))
        return waiting

    def asked(self, token: int, waiting: AwaitedRetained) -> None:
        """Records that the subscriptions of `open` were sent with `token`."""
        if waiting:
            self._asked[token] = waiting

    def answered(self, token: int, refused: Collection[str]) -> bool:
        """The broker has answered; whether there is something to save."""
        given = [source for source, topic_filter in self._asked.pop(token, ()) if topic_filter not in refused]
        for source in given:
            self.look_ups.give(source.flow, source.filter)
        return bool(given)

    @property
    def pending(self) -> bool:
        """True if retained messages were asked for and the broker has not answered: nothing else is to be asked
        meanwhile, or it could not be told for whom they come."""
        return bool(self._asked)

    def waits(self, source: SubscribedSource) -> bool:
        return source.reader.retained and self.look_ups.waits(source.flow, source.filter)

    def _id(self, topic_filter: str) -> int:
        if topic_filter not in self.ids:
            self.ids[topic_filter] = self._next()
        return self.ids[topic_filter]

    def _next(self) -> int:
        """The least identifier that was never used."""
        return max([self._first - 1, *self.ids.values(), *self.old]) + 1
