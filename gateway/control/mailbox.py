"""Messages of the control plane that wait to be handled or sent: of each topic the newest, the oldest topic first.

Retained documents come all at once after a connect, as many as there are flows. What a document says is replaced by the
next one on its topic, so none has to be dropped for want of room.
"""

from __future__ import annotations

import asyncio
from typing import Final

from edgert.core.text.long_text import beyond_short
from edgert.mqtt.clients.control_plane import MqttRequest

Incoming = tuple[str, bytes, MqttRequest | None]
"""Topic, payload, and where an answer is wanted."""
MOST_MESSAGES: Final = 20_000
MOST_BYTES: Final = 64 << 20


class Mailbox:
    """The queue of one event loop, with the interface of `asyncio.Queue`. A message that asks for an answer is replaced
    only by one that asks for the same."""

    def __init__(self, most_messages: int = MOST_MESSAGES, most_bytes: int = MOST_BYTES) -> None:
        self.maxsize, self._most_bytes = most_messages, most_bytes
        self._waiting: dict[tuple[str, str, bytes | None], Incoming] = {}
        self._bytes = 0
        self._came = asyncio.Event()

    def qsize(self) -> int:
        return len(self._waiting)

    def empty(self) -> bool:
        return not self._waiting

    def put_nowait(self, message: Incoming) -> None:
        """Raises `asyncio.QueueFull` if there is no room for one more."""
        topic, _, request = message
        key = (topic, request.topic, request.correlation) if request else (topic, "", None)
        before = self._waiting.get(key)
        size = self._bytes + _bytes_of(message) - (_bytes_of(before) if before else 0)
        if (before is None and len(self._waiting) >= self.maxsize) or size > self._most_bytes:
            raise asyncio.QueueFull
        self._waiting[key] = message
        self._bytes = size
        self._came.set()

    async def get(self) -> Incoming:
        """The message that has waited longest; waits for one."""
        while not self._waiting:
            self._came.clear()
            await self._came.wait()
        message = self._waiting.pop(next(iter(self._waiting)))
        self._bytes -= _bytes_of(message)
        return message


def _bytes_of(message: Incoming) -> int:
    topic, payload, request = message
    texts = (topic, request.topic, request.correlation) if request else (topic,)
    return len(payload) + beyond_short(texts)
