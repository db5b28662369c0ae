"""Between the network's thread and the writer's: messages in order of arrival, bounded in bytes."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from edgert.core.compression import expanded_size
from edgert.core.errors import PayloadError

_OVERHEAD: Final = 200
"""Bytes of memory that a message costs beside its topic and payload."""


@dataclass(frozen=True, slots=True)
class ResultMessage:
    """One MQTT message."""

    topic: str
    payload: bytes

    @property
    def size(self) -> int:
        """Bytes of memory that the message costs, for all bounds on messages that wait. A character of a topic takes up
        to four."""
        return len(self.payload) + sys.getsizeof(self.topic) + _OVERHEAD


class ResultInbox:
    """A full inbox makes the network wait for a while, and so the broker, then drops: the outbox sends again."""

    def __init__(
        self, most_bytes: int, patience_s: float = 5.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._most_bytes = most_bytes
        self._monotonic = monotonic
        self._patience_s = patience_s
        self._messages: list[ResultMessage] = []
        self._changed = threading.Condition()
        self._bytes = 0
        self._content = 0
        """Bytes before compression: what is to be done."""
        self._first_at = 0.0
        """When the first of the messages came."""
        self._closed = False
        self.dropped = 0

    def put(self, message: ResultMessage) -> bool:
        """Add a message; waits while there is no room. False if it was dropped (counted in `dropped`)."""
        size = message.size
        with self._changed:
            room = self._changed.wait_for(lambda: self._closed or self._fits(size), self._patience_s)
            if self._closed or not room:
                self.dropped += 1
                return False
            if not self._messages:
                self._first_at = self._monotonic()
            self._messages.append(message)
            self._content += _content_size(message.payload)
            self._bytes += size
            self._changed.notify_all()
            return True

    def take(self, gather_s: float, gather_bytes: int, patience_s: float) -> list[ResultMessage]:
        """Takes all messages that come within `gather_s` of the first message, or until `gather_bytes` (not compressed)
        are there. A message that has waited while others were worked on does not wait so long once more.

        Waits at most `patience_s` for the first message. Returns at once when the inbox is closed or woken.
        """
        with self._changed:
            if self._changed.wait_for(lambda: self._closed or bool(self._messages), patience_s) and not self._closed:
                rest_s = max(0.0, self._first_at + gather_s - self._monotonic())
                self._changed.wait_for(lambda: self._closed or self._content >= gather_bytes, rest_s)
            taken, self._messages, self._bytes, self._content = self._messages, [], 0, 0
            self._changed.notify_all()
            return taken

    def close(self) -> None:
        """Closes the inbox: it takes in nothing more, and threads that wait go on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        # A message alone always fits, however large.
        return not self._messages or self._bytes + size <= self._most_bytes


def _content_size(payload: bytes) -> int:
    """Bytes of the content of a payload. A damaged payload counts as it is: its reader reports the fault."""
    try:
        return expanded_size(payload)
    except PayloadError:
        return len(payload)
