"""The writes over MQTT that this gateway accepted: they count more than what a broker retains that went back in time.

A broker writes its memory to the disk now and then (Mosquitto on a board: every five minutes). After a power cut it
retains what it had then, and a document that was replaced or removed since comes back. The gateway knows it as one that
it accepted before the last.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec

from edgert.core.errors import DocumentError, Problem
from edgert.mqtt.clients.control_plane import MqttRequest
from edgert.mqtt.clients.deployment import digest
from gateway.registry.registry import FlowRegistry

MOST_WRITES: Final = 16
"""Writes of one topic that are remembered."""
KEY: Final = "accepted "
AcceptedWrite = tuple[str, bytes]
"""Digest of the payload, and the correlation data that tells one write from another with the same payload; empty where
the writer or the broker has none (MQTT 3.1.1)."""


class AcceptedWrites:
    """The database has the last writes of each topic. A damaged entry is left out: what the broker retains is taken
    then, as by a new gateway."""

    def __init__(self, registry: FlowRegistry) -> None:
        self._database, self._store = registry.database, registry.store
        self._known: dict[str, list[AcceptedWrite]] = {}
        self.changes = 0
        """Writes since the start."""
        query = "SELECT key, value FROM meta WHERE key GLOB ?"
        for key, packed in self._database.read(lambda db: db.execute(query, (f"{KEY}*",)).fetchall()):
            with suppress(msgspec.MsgspecError, TypeError):
                self._known[key.removeprefix(KEY)] = msgspec.msgpack.decode(packed, type=list[AcceptedWrite])

    async def add(self, topic: str, payload: bytes, request: MqttRequest | None = None) -> None:
        """The write is the last that was accepted on its topic. Raises `StoreError`."""
        if packed := self._added(topic, payload, request):
            await self._store(lambda: self._database.set_meta(KEY + topic, packed))

    def note(self, topic: str, payload: bytes, request: MqttRequest | None = None) -> None:
        """Works as `add`, and is written with the next transaction of the database."""
        if packed := self._added(topic, payload, request):
            self._database.note(KEY + topic, packed)

    def _added(self, topic: str, payload: bytes, request: MqttRequest | None) -> bytes:
        """Returns what the database is to hold for the topic; nothing if it holds that already."""
        write, known = write_of(payload, request), self._known.get(topic, [])
        if known[-1:] == [write]:
            return b""
        self.changes += 1
        self._known[topic] = now = [*(one for one in known if one != write), write][-MOST_WRITES:]
        return msgspec.msgpack.encode(now)

    def is_replaced(self, topic: str, payload: bytes, request: MqttRequest | None) -> bool:
        """True for a retained write that was accepted before the last one of its topic. Without correlation data a
        write that repeats an earlier document cannot be told from that document, and counts as old."""
        written, known = write_of(payload, request), self._known.get(topic, [])
        if written[1]:
            return written in known[:-1]
        return written[0] in {one[0] for one in known[:-1]} - {one[0] for one in known[-1:]}


def write_of(payload: bytes, request: MqttRequest | None) -> AcceptedWrite:
    return digest(payload), (request.correlation or b"") if request else b""


def replaced(what: str) -> DocumentError:
    """The answer to a retained write that was accepted before the last one."""
    got = "an earlier one, which the broker retains; publish it again while the gateway is connected if it is meant"
    return DocumentError(what, [Problem("document", "the write that was accepted last", got)])
