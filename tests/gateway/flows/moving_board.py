"""A gateway without MQTT connections, with its links and parts, and the sensors' broker of one: for `moving`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, cast

from edgert.core.settings.gateway import Links, Pool
from edgert.mqtt.clients.reconnect import Backoff
from edgert.mqtt.packets.packets import Publish, PublishRun
from gateway.base.tasks import to_its_end
from gateway.control.commands import Commands
from gateway.flows.guests import Guests
from gateway.flows.parts import Parts
from gateway.links.flow_links import FlowLinks
from tests.gateway.whole_gateway import Gateway

HOST: Final = "127.0.0.1"


class Broker:
    """The sensors' broker of the source's board: it delivers again what was not acknowledged."""

    def __init__(self) -> None:
        self.open: dict[int, Publish] = {}
        self._packet_id = 0

    def publish(self, topic: str, payload: bytes) -> Publish:
        while (packet_id := self._packet_id % 65_535 + 1) in self.open:
            self._packet_id += 1
        self._packet_id += 1
        message = self.open[packet_id] = Publish(topic, payload, 1, False, False, packet_id, ())
        return message

    def acknowledged(self, packets: Iterable[tuple[int, int]], connection: int | None = None) -> bool:
        for packet_id, _ in packets:
            self.open.pop(packet_id, None)
        return True

    def again(self) -> list[Publish | PublishRun]:
        return [Publish(m.topic, m.payload, 1, False, True, m.packet_id, ()) for m in self.open.values()]


class Board(Gateway):
    """One life of a gateway."""

    def __init__(self, path: Path, name: str, port: int, broker: Broker) -> None:
        self.name, self.port = name, port
        self.alive, self.connected = True, False
        """`connected`: to the broker, which delivered again first what was open."""
        self._thread = ThreadPoolExecutor(1)
        super().__init__(path, name=name)
        self.ingest.client.acknowledge = broker.acknowledged  # type: ignore[method-assign]
        self.parts.loaded()
        commands = Commands(
            name, Pool(), self.flows, self.host, self.parts, Guests(self.parts), self.links, cast(Any, None), self.clock
        )
        self.verbs = commands.of_agent()

    def before_load(self) -> None:
        settings = Links(True, HOST, self.port)
        self.links = FlowLinks(
            "test", self.name, settings, self.database, self.store, self.host, self.ingest, self.clock
        )
        self.links.peers.backoff = Backoff(0.01, 0.1)
        self.parts = Parts(self.name, self.flows, self.host, self.database, self.store, self.clock, self.links)
        self.flow_registry.on_change, self.checkpointer.on_written = self.links.sync, self.links.committed
        self.parts.load()

    async def store(self, call: Callable[[], Any]) -> Any:
        return await to_its_end(asyncio.get_running_loop().run_in_executor(self._thread, call))

    async def start(self) -> None:
        await self.links.start()
        await self.links.sync(self.flows.runs)

    async def merge(self, flow: str) -> None:
        """Makes one snapshot of all stored state of a flow, as a checkpoint does once there are many deltas."""
        if (run := self.flows.runs.get(flow)) is not None:
            await self.store(lambda: self.checkpointer.compact(run))

    async def kill(self) -> None:
        """Calls that the store thread has begun are done; nothing else is."""
        self.alive = False
        self._thread.shutdown()
        await self.links.stop()
        await asyncio.to_thread(self.crash)
