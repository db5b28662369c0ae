"""The gateway's MQTT interface on a bus, with flows and models that note what they are asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from edgert.core.checkpoint.position import Position
from edgert.core.errors import DocumentError, Problem
from edgert.flow.graph import Flow
from edgert.flow.versions.kept_state import KeptState
from edgert.mqtt.clients.control_plane import MqttRequest
from edgert.operators.registry import REGISTRY
from edgert.store.state.records import StoredFlow
from gateway.control.mqtt_api import MqttApi
from gateway.flows.flows import Flows
from gateway.flows.models import Models

BASE = "edgert/v1/fleet/g1"
GOOD = {"name": "f", "operators": {"in": {"type": "mqtt_source", "topic": "x"},
                                   "out": {"type": "publish", "input": "in", "topic": "y"}}}  # fmt: skip


class FakeModels(Models):
    def __init__(self, flows: FakeFlows) -> None:
        super().__init__({}, lambda run, operator, document: None)
        self.flows = flows

    async def offer_untrusted(self, name: str, document: Mapping[str, Any], *, of_fleet: bool = False) -> list[str]:
        if self.flows.fault:
            raise self.flows.fault
        return [f"{'fleet' if of_fleet else 'f'}/{name}"]


class FakeFlows:
    registry = REGISTRY

    def __init__(self) -> None:
        self.kept_state: dict[str, KeptState] = {}
        self.running: dict[str, int] = {}
        self.fault: Exception | None = None
        self.models = FakeModels(self)
        self.notes: dict[str, bytes] = {}
        """Of the database."""
        self.flow_registry = SimpleNamespace(stored=dict[str, StoredFlow](), database=self, store=self.store)

    async def store(self, call: Callable[[], Any]) -> Any:
        return call()

    def note(self, key: str, value: bytes) -> None:
        self.notes[key] = value

    set_meta = note

    def read(self, _: object) -> list[tuple[str, bytes]]:
        return list(self.notes.items())

    @property
    def loops(self) -> FakeFlows:
        return self

    def version(self, name: str) -> int | None:
        return self.running.get(name)

    async def deploy(self, flow: Flow, origin: str) -> int:
        if self.fault:
            raise self.fault
        self.running[flow.name] = version = self.running.get(flow.name, 0) + 1
        stored = StoredFlow(flow.name, flow.document, version, origin, False, 1, Position())
        self.flow_registry.stored[flow.name] = stored
        return self.running[flow.name]

    async def cautions(self, name: str) -> list[str]:
        return [f"{name} may loop"]

    async def remove(self, name: str) -> bool:
        if name in self.flow_registry.stored:
            self.flow_registry.stored[name] = replace(self.flow_registry.stored[name], removed=True)
        return self.running.pop(name, None) is not None


class Rig:
    def __init__(self) -> None:
        self.flows = FakeFlows()
        self.published: list[tuple[str, Any, bool]] = []
        self.written_back: list[tuple[str, bytes, MqttRequest]] = []
        self.api = self.started()

    def started(self) -> MqttApi:
        """The interface of a gateway that starts with this database."""
        api = MqttApi("fleet", "g1", cast(Flows, self.flows), self.answer, self.apply)
        api.write_back = lambda *write: self.written_back.append(write)
        return api

    def answer(self, topic: str, payload: bytes, request: MqttRequest | None) -> None:
        self.published.append((topic, json.loads(payload), request is None))

    async def apply(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        if "pool" in document:
            return {"applied": sorted(document)}
        if "boom" in document:
            raise RuntimeError("as told")
        raise DocumentError("config", [Problem("sensors.host", "a setting that may change", "it")])

    async def write(self, topic: str, document: object) -> Any:
        payload = document if isinstance(document, bytes) else json.dumps(document).encode()
        await self.api.handle_untrusted(f"{BASE}/{topic}", payload, None)
        answered, answer, retain = self.published.pop()
        assert (answered, retain, self.published) == (f"{BASE}/{topic}/state", True, [])
        return answer
