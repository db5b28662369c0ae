"""Who answers for a message, by flow: what one may miss, or count twice, at the end of a walk, and nothing else.

The broker answers for what it was given, until the gateway has acknowledged it; the gateway for what it has committed
or acknowledged, as long as it lives also for what has reached it. What nobody holds any more was lost by whom the walk
let lose it, and is excused: this message, in this flow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from edgert.mqtt.topics import covers


@dataclass(frozen=True, slots=True)
class Copy:
    """A message on its way to the gateway by one subscription."""

    uid: int
    topic: str
    payload: bytes
    ids: tuple[int, ...]
    filter: str


Messages = dict[str, set[int]]
"""By flow."""


class Ledger:
    """`flows`: what each reads. A flow has one subscription."""

    def __init__(self, flows: Mapping[str, str]) -> None:
        self._flows = flows
        self.reads = {flow: [topic_filter] for flow, topic_filter in flows.items()}
        """What each reads, and before it what its earlier versions did."""
        self._brought: dict[tuple[int, str], set[str]] = {}
        """Message and filter → flows for which that copy is."""
        self.kept: Messages = self._none()
        """On the card: committed, as far as can be seen from outside, or acknowledged."""
        self.in_hand: Messages = self._none()
        """Reached this life of the gateway."""
        self.processed: Messages = self._none()
        """On the card, and not in a queue there."""
        self.lost: Messages = self._none()
        """By a broker or a card that may lose."""
        self.doubted: Messages = self._none()
        """New ones that were taken for redeliveries, and counted as ambiguous."""
        self.again: dict[str, Counter[int]] = {flow: Counter() for flow in flows}
        """What may count so many times more."""
        self.shed: dict[str, Counter[str]] = {flow: Counter() for flow in flows}
        """Messages in rows that made way in the outbox, by their field `u`."""
        self.absent: set[str] = set()
        """Flows that are removed just now."""
        self.behind: Messages = self._none()
        """What may lie before the position to which a fallback went, and not be in its state."""
        self.delivered: Messages = self._none()
        """Ever."""
        self.went_back = False
        """True if the card was ever put back: then a copy may come by a subscription that it does not know."""

    def _none(self) -> Messages:
        return {flow: set() for flow in self._flows}

    def flows_of(self, copy: Copy) -> list[str]:
        brought = self._brought.get((copy.uid, copy.filter), ())
        return [flow for flow in self._flows if flow in brought]

    def held(self, flow: str, held: set[Copy]) -> set[int]:
        """Of what a broker holds."""
        return {copy.uid for copy in held if flow in self.flows_of(copy)}

    # -- what happens

    def published(self, uid: int, topic: str, subscribed: Collection[str]) -> None:
        """A message comes to a flow by what was subscribed for it last; by nothing, it is lost."""
        for flow, filters in self.reads.items():
            if covers(filters[0], topic):
                by = next((f for f in filters if f in subscribed), None)
                if by is None:
                    self.lost[flow].add(uid)
                else:
                    self._brought.setdefault((uid, by), set()).add(flow)

    def changed(self, flow: str, topic_filter: str) -> None:
        """A new version of it may read another filter."""
        if self.reads[flow][0] != topic_filter:
            self.reads[flow].insert(0, topic_filter)

    def arrived(self, copies: Iterable[Copy], dropped: set[tuple[str, int]], unknown: Collection[Copy]) -> None:
        """The gateway has got them; `dropped`: what it took for redeliveries, by flow; `unknown`: those that came by a
        subscription of which the card knows nothing. They go by their topics, to flows that have copies of their own,
        too."""
        assert self.went_back or not unknown, f"{unknown} came by subscriptions that the gateway does not know"
        for copy in copies:
            if copy in unknown:
                for flow in self._flows.keys() - set(self.flows_of(copy)):
                    if covers(self.reads[flow][0], copy.topic) and (flow, copy.uid) not in dropped:
                        self.again[flow][copy.uid] += 1
            for flow in self.flows_of(copy):
                self.delivered[flow].add(copy.uid)
                if (flow, copy.uid) not in dropped and flow not in self.absent:
                    self.in_hand[flow].add(copy.uid)

    def has(self, flow: str, uid: int) -> bool:
        """Whether a redelivery of it may be dropped."""
        return uid in self.kept[flow] or uid in self.in_hand[flow]

    def acknowledged(self, copy: Copy) -> None:
        """The gateway has said so: from now on it answers for it."""
        for flow in self.flows_of(copy):
            self.kept[flow].add(copy.uid)

    def broker_lost(self, copies: Iterable[Copy]) -> None:
        """What has reached the gateway it still has, as long as it lives."""
        for copy in copies:
            for flow in self.flows_of(copy):
                if not self.has(flow, copy.uid):
                    self.lost[flow].add(copy.uid)

    def broker_has_again(self, copies: Iterable[Copy]) -> None:
        """An older state of it: what was delivered since comes as if it had not been."""
        for copy in copies:
            for flow in self.flows_of(copy):
                if copy.uid in self.delivered[flow]:
                    self.again[flow][copy.uid] += 1

    def died(self, held: set[Copy]) -> None:
        """The gateway; `held`: what the broker delivers again."""
        for flow in self._flows:
            self._missing(flow, self.in_hand[flow] - self.kept[flow], held)
            self.in_hand[flow].clear()

    def card_is_older(self, flow: str, kept: set[int], held: set[Copy], may_repeat: set[int] | None = None) -> None:
        """Of a flow it has no more than `kept`. `may_repeat`: results that it does not know stay in the tables, and so
        much of what it has may be in them."""
        if may_repeat is not None:
            self.again[flow].update(self.held(flow, held) & self.kept[flow] | may_repeat)
        self._missing(flow, self.kept[flow] - kept, held)
        self.kept[flow] = set(kept)
        self.processed[flow] &= kept

    def removed(self, flow: str, held: set[Copy]) -> None:
        """What it had has been counted; what comes until there is another of its name is for nobody."""
        self.kept[flow] |= self.in_hand[flow]
        self.lost[flow] |= self.held(flow, held) - self.kept[flow]
        self.absent.add(flow)
        del self.reads[flow][1:]

    def _missing(self, flow: str, uids: set[int], held: set[Copy]) -> None:
        self.lost[flow] |= uids - self.held(flow, held)

    # -- at the end

    def excused(self, flow: str, unique: bool) -> set[int]:
        """Of `unique` payloads none is taken for another; only for itself, if a fallback has lost it."""
        return self.lost[flow] | (self.doubted[flow] & self.behind[flow] if unique else self.doubted[flow])
