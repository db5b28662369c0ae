"""A gateway without threads and sockets: a broker in memory, a clock that is turned, workers that never start.

All runs in one thread and the same way each time, so the instructions of a message can be counted. What the
kernel does for it (reading the socket, waking threads, writing the disk) is not in them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from agent.simulation.loop import LoopClock, VirtualLoop
from benchmarks.cost.workloads import Sent
from edgert.core.config import load
from edgert.core.settings.gateway import GatewaySettings
from edgert.core.toml import to_toml
from edgert.mqtt.packets.properties import encode_text, encode_varint, read_varint_untrusted
from edgert.runtime.interpreter import Garbage
from edgert.runtime.pool.pool import Pool
from gateway.daemon import Daemon
from gateway.hosts.host import Host
from gateway.hosts.in_process import InProcess

CONNECT, PUBLISH, SUBSCRIBE, PINGREQ = 0x10, 0x30, 0x82, 0xC0
CONNACK = bytes((0x20, 3, 0, 0, 0))
"""MQTT 5: no session, success, no properties."""
PINGRESP = bytes((0xD0, 0))
SETTLES_S = 5.0
"""Virtual; the subscriptions are answered in it."""


class Broker(asyncio.Transport):
    """The transport of the sensors' client, and the broker behind it: answers CONNECT and SUBSCRIBE, and takes all
    else."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: asyncio.Protocol) -> None:
        super().__init__()
        self._loop, self.client = loop, client
        self.subscriptions: dict[str, int] = {}
        """Topic filter → subscription identifier."""
        self.written = 0
        """Bytes that the client wrote."""
        self.published = 0
        """Writes of the client that begin with a PUBLISH packet."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += len(data)
        self.published += data[0] & 0xF0 == PUBLISH
        if data[0] in (CONNECT, SUBSCRIBE, PINGREQ):
            for answer in self._answers(bytes(data)):
                self._loop.call_soon(self.client.data_received, answer)

    def _answers(self, data: bytes) -> Iterable[bytes]:
        at = 0
        while at < len(data):
            length, body = read_varint_untrusted(data, at + 1, len(data))
            if data[at] == CONNECT:
                yield CONNACK
            elif data[at] == SUBSCRIBE:
                yield self._subscribed(data[body : body + length])
            elif data[at] == PINGREQ:
                yield PINGRESP
            at = body + length

    def _subscribed(self, body: bytes) -> bytes:
        """The SUBACK: each filter with the QoS that was asked for."""
        length, at = read_varint_untrusted(body, 2, len(body))
        identifier = read_varint_untrusted(body, at + 1, len(body))[0] if length else 0
        at += length
        granted = bytearray()
        while at < len(body):
            end = at + 2 + int.from_bytes(body[at : at + 2], "big")
            self.subscriptions[body[at + 2 : end].decode()] = identifier
            granted.append(body[end] & 3)
            at = end + 1
        answer = body[:2] + b"\0" + granted
        return b"\x90" + encode_varint(len(answer)) + answer

    def publish(self, message: Sent, qos: int, packet_id: int) -> bytes:
        """PUBLISH packets of a message, one for each subscription but that of the broker's own figures."""
        packets = b""
        for topic_filter, identifier in self.subscriptions.items():
            if not topic_filter.startswith("$"):
                head = encode_text(message.topic) + (packet_id.to_bytes(2, "big") if qos else b"")
                properties = b"\x0b" + encode_varint(identifier)
                head += encode_varint(len(properties)) + properties
                size = len(head) + len(message.payload)
                packets += bytes((0x30 | qos << 1,)) + encode_varint(size) + head + message.payload
        return packets

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Nothing comes that was not asked for."""

    def resume_reading(self) -> None:
        """Nothing comes that was not asked for."""

    def close(self) -> None:
        """The process ends with the measurement."""


class Loop(VirtualLoop):
    """Connects to the broker in memory."""

    broker: Broker

    async def create_connection(self, protocol_factory: Callable[[], Any], *where: Any, **how: Any) -> Any:
        protocol = protocol_factory()
        self.broker = Broker(self, protocol)
        protocol.connection_made(self.broker)
        return self.broker, protocol


class _WithoutWorkers(InProcess):
    async def start(self) -> None:
        """The loop's thread does all work: see `drain`."""


class _Gateway(Daemon):
    def _make_host(self) -> Host:
        host = super()._make_host()
        assert isinstance(host, InProcess)
        return _WithoutWorkers(host.pool, self.clock)


class Stand:
    """A gateway whose flows are deployed, and which hears its broker."""

    def __init__(self, folder: Path, documents: Iterable[Mapping[str, Any]]) -> None:
        self.loop = Loop()
        asyncio.set_event_loop(self.loop)
        self.clock = LoopClock(self.loop)
        files = []
        for document in documents:
            files.append(folder / f"{document['name']}.json")
            files[-1].write_text(json.dumps(_nested(document)), encoding="utf-8")
        settings = {
            "gateway": {"id": "cost", "data_dir": str(folder)},
            "central": {"enabled": False},
            "web": {"enabled": False},
            "log": {"level": "error"},
            "flows": {"files": [str(file) for file in files]},
        }
        config = folder / "gateway.toml"
        config.write_text(to_toml(settings), encoding="utf-8")
        self.gateway = _Gateway(load(GatewaySettings, config, {}), self.clock)
        self.loop.run_until_complete(self._start(len(files)))
        Garbage(self.clock.monotonic())  # as in the gateway

    async def _start(self, flows: int) -> None:
        await self.gateway.start()
        await self.gateway.tasks[-1]  # the documents
        if (found := len(self.gateway.flows.runs)) != flows:
            raise RuntimeError(f"expected {flows} flows, got {found}: {self.gateway.flows.failed}")
        await asyncio.sleep(SETTLES_S)
        if not self.gateway.ingest.subscriber.hears:
            raise RuntimeError("expected a gateway that hears its broker")

    @property
    def pool(self) -> Pool:
        host = self.gateway.host
        assert isinstance(host, InProcess)
        return host.pool

    def run(self, seconds: float) -> None:
        """Lets time go by."""
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def feed(self, reads: Iterable[bytes], spacing_s: float, checkpoint_after: int = 0) -> None:
        """Gives the reads to the gateway, each when the one before is worked on. `spacing_s`: event time between two
        reads; `checkpoint_after`: reads after which a checkpoint is made, 0 for none."""
        self.loop.run_until_complete(self._feed(reads, spacing_s, checkpoint_after))

    async def _feed(self, reads: Iterable[bytes], spacing_s: float, checkpoint_after: int) -> None:
        client = self.loop.broker.client
        for number, read in enumerate(reads, 1):
            self.clock.jump(spacing_s)
            client.data_received(read)
            await asyncio.sleep(0)  # the loop writes what there is to write
            if checkpoint_after and number % checkpoint_after == 0:
                await self.gateway.checkpointer.checkpoint(self.gateway.flows.runs.values())
                await asyncio.sleep(0)

    def drain(self) -> None:
        """Works on what a lent thread leaves to the workers: instances that have not shown to be fast."""
        pool = self.pool
        while True:
            with pool.lock:
                number, _ = pool.backpressure.pick(self.clock.monotonic(), lambda instance: True)
                if number is None:
                    return
                instance, entries = pool.take(number)
            turn = pool.run_turn(instance, entries)
            with pool.lock:
                pool.settle_turn(instance, turn)


def _nested(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with `a.b` as a table."""
    nested: dict[str, Any] = {}
    for key, value in document.items():
        table, _, name = key.rpartition(".")
        (nested.setdefault(table, {}) if table else nested)[name] = value
    return nested
