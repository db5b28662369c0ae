"""Messages of ours at QoS 0, which no broker acknowledges: whether it hung up at one. Pure.

A broker answers packets in their order, so an answer to a ping says that it took what was sent before. Topics that were
in doubt when a connection ended are watched: one message at a time, with a ping behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MOST_TOPICS: Final = 100
"""Most topics that are kept, those of the last messages: a broker hangs up at what it has just read."""


class Unproven:
    """Topics of one session's messages that nothing shows yet to have been taken."""

    def __init__(self) -> None:
        self._pings = 0
        self._pongs = 0
        self._sent: dict[str, int] = {}
        """Topic -> number of the ping behind its last message."""
        self._watched: set[str] = set()

    @property
    def busy(self) -> bool:
        """A watched message is under way: nothing else may be sent, or the wrong one would be blamed."""
        return not self._watched.isdisjoint(self._sent)

    @property
    def watching(self) -> bool:
        """True if some topic is watched."""
        return bool(self._watched)

    def watches(self, topic: str) -> bool:
        return topic in self._watched

    def sent(self, topic: str) -> None:
        """A message was written."""
        self._sent.pop(topic, None)
        self._sent[topic] = self._pings + 1
        if len(self._sent) > MOST_TOPICS:
            del self._sent[next(iter(self._sent))]

    def sent_together(self, topics: Sequence[str]) -> None:
        """Messages were written in this order, none of a watched topic."""
        newest = dict.fromkeys(topics[-MOST_TOPICS:], self._pings + 1)
        for topic in newest:
            self._sent.pop(topic, None)
        self._sent.update(newest)
        while len(self._sent) > MOST_TOPICS:
            del self._sent[next(iter(self._sent))]

    def pinged(self) -> None:
        """A PINGREQ was written."""
        self._pings += 1

    def ponged(self) -> list[str]:
        """PINGRESP has come. Returns the watched topics that the broker has taken."""
        self._pongs += 1
        proven = {topic for topic, ping in self._sent.items() if ping <= self._pongs}
        for topic in proven:
            del self._sent[topic]
        taken = sorted(self._watched & proven)
        self._watched -= proven
        return taken

    def ended(self) -> str | None:
        """A connection is over. Returns the watched topic that was under way; if there was none, the topics of the last
        messages are watched from now on."""
        under_way = [topic for topic in self._sent if topic in self._watched]
        if not under_way:
            self._watched = set(self._sent)
        self._sent.clear()
        self._pings = self._pongs = 0
        return under_way[0] if under_way else None
