"""Configuration over MQTT: flow documents and settings come as retained messages, and every write is answered.

edgert/v1/<fleet>/<gateway>/status           retained birth; the Will is the death
                           /config           settings that may change while running (a document like gateway.toml)
                           /config/state     the answer
                           /flows/<flow>     retained deployment document; empty removes the flow
                           /flows/<flow>/state  the answer
                           /models/<name>    retained model (docs/models.md); empty: flows to come begin with their own
                           /models/<name>/state  the answer
                           /cmd/<verb>       MQTT 5 request, answered to its response topic: status, checkpoint,
                                             place, weigh, compare, update (a JSON document with its
                                             arguments)
                           /update/state     retained: slot, version and last update of the board (`updates`)
                           /crl/state        retained: which list of revoked certificates the board has (`revoked`)
edgert/v1/<fleet>/@crl                       retained list of revoked certificates, for all boards
edgert/v1/<fleet>/@models/<name>             retained model for all gateways; one of the gateway's own comes before it
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import to_builtins

from edgert.core.errors import DocumentError, EdgertError, Problem, show
from edgert.core.ids import TABLE_NAME
from edgert.core.text.model_topic import model_topic
from edgert.core.text.revoked_topic import revoked_topic
from edgert.flow.document import from_plain, read_untrusted
from edgert.flow.graph import Flow
from edgert.flow.versions.kept_state import NOTHING_REPLACED
from edgert.mqtt.clients.control_plane import MqttRequest
from edgert.mqtt.clients.deployment import digest
from gateway.control.accepted_writes import AcceptedWrites, replaced
from gateway.control.commands import Command
from gateway.flows.flows import Flows

log = logging.getLogger(__name__)


MOST_WRITTEN_BACK: Final = 10_000
Reply = Callable[[str, bytes, "MqttRequest | None"], None]
"""(topic, payload, request that it answers: without one it is retained)."""


@dataclass(slots=True)
class MqttApi:
    """Handles the messages of the control plane, on the daemon's loop: documents one after the other, commands beside
    them."""

    fleet: str
    gateway: str
    flows: Flows
    answer: Reply
    apply_settings: Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
    """Takes a partial settings document; returns what the answer shall add, or raises `DocumentError`."""
    commands: Mapping[str, Command] = field(default_factory=dict)
    revoked: Callable[[bytes], Awaitable[None]] | None = None
    """Takes the fleet's list of revoked certificates; None: this gateway has no use for one."""
    config_version: int = 0
    write_back: Callable[[str, bytes, MqttRequest], object] = lambda topic, payload, request: None
    """(topic, payload, request): publishes a retained document of this gateway, with the request's topic and data."""
    accepted: AcceptedWrites = field(init=False)
    _written_back: deque[bytes | None] = field(default_factory=lambda: deque(maxlen=MOST_WRITTEN_BACK))
    """Correlation data of documents that were written back."""

    def __post_init__(self) -> None:
        self.accepted = AcceptedWrites(self.flows.flow_registry)

    @property
    def base(self) -> str:
        return f"edgert/v1/{self.fleet}/{self.gateway}"

    @property
    def subscriptions(self) -> list[tuple[str, int]]:
        # Brokers send what they keep in this order: a gateway's own models before those of the fleet.
        own = [(f"{self.base}/{below}", 1) for below in ("config", "flows/+", "models/+", "cmd/+")]
        lists = [(revoked_topic(self.fleet), 1)] if self.revoked else []
        return [*own, (model_topic(self.fleet, "+"), 1), *lists]

    async def handle_untrusted(self, topic: str, payload: bytes, request: MqttRequest | None) -> None:
        """One message. Nothing that it holds can raise."""
        if topic == revoked_topic(self.fleet):
            if self.revoked is not None:
                await self.revoked(payload)
            return
        of_fleet = model_topic(self.fleet, "")
        if topic.startswith(of_fleet):
            await self._model(topic.removeprefix(of_fleet), payload, request, of_fleet=True)
            return
        if request is not None and request.correlation in self._written_back:
            return  # it comes as any other, perhaps behind a newer one
        kind, _, name = topic.removeprefix(self.base + "/").partition("/")
        if kind == "flows" and name:
            await self._flow(name, payload, request)
        elif kind == "models" and name:
            await self._model(name, payload, request)
        elif kind == "config" and not name:
            await self._config(payload, request)
        elif kind == "cmd" and name:
            await self._command(name, payload, request)

    # -- a broker that went back

    def refuse_older(self, topic: str, payload: bytes, request: MqttRequest | None) -> bool:
        """Returns True for a retained document that this gateway accepted before the last one of its topic: the broker
        has lost what came since. The document of a flow is written back, so that the broker retains it again."""
        below = self._below(topic)
        if not self.accepted.is_replaced(below, payload, request):
            return False
        what = f"the retained document on {show(topic)}"
        answer = self._refusal(replaced(what))
        kind, _, name = below.partition("/")
        log.warning("%s is older than the one that was accepted last, which stays: the broker went back in time", what)
        stored = self.flows.flow_registry.stored.get(name)
        if kind == "flows" and stored is not None:
            answer["running_version"] = self.flows.version(name)
            if stored.removed or stored.origin == "mqtt":
                current = b"" if stored.removed else json.dumps(stored.document).encode()
                back = MqttRequest(f"{topic}/state", os.urandom(8))
                self._written_back.append(back.correlation)
                self.accepted.note(below, current, back)
                self.write_back(topic, current, back)
        answer["digest"] = digest(payload)
        self._answer(f"{self.base}/{below.removeprefix('@')}/state", answer)
        return True

    def _below(self, topic: str) -> str:
        """The part of a topic by which its writes are known, of the fleet's models `@models/NAME`."""
        return topic.removeprefix(f"{self.base}/").removeprefix(f"edgert/v1/{self.fleet}/")

    # -- flows

    async def _flow(self, name: str, payload: bytes, request: MqttRequest | None) -> None:
        async def change() -> dict[str, Any]:
            if not TABLE_NAME.fullmatch(name):
                raise DocumentError("flow", [Problem("topic", f"a flow's name ({TABLE_NAME.pattern})", show(name))])
            if payload:
                flow = await asyncio.to_thread(self._checked_untrusted, name, payload)
                version: int | None = await self.flows.deploy(flow, "mqtt")
                state = to_builtins(self.flows.kept_state.get(name, NOTHING_REPLACED))
                return {"version": version, "cautions": await self.flows.loops.cautions(name), "state": state}
            version = self.flows.version(name)
            return {"version": version, "removed": True, "existed": await self.flows.remove(name)}

        write = f"flows/{name}", payload, request
        answer = await self._done(f"a document for flow {show(name)}", change(), write)
        answer["running_version"] = self.flows.version(name)
        answer["digest"] = digest(payload)
        self._answer(f"{self.base}/flows/{name}/state", answer)

    def _checked_untrusted(self, name: str, payload: bytes) -> Flow:
        """The flow of a document. Raises `DocumentError` with every fault, a name other than the topic's among them.
        Beside the loop: a large document takes long."""
        what = f"flow {name}"
        document = read_untrusted(payload, what=what)
        problems: list[Problem] = []
        if "name" in document and document["name"] != name:
            problems.append(Problem("name", f"{name!r}, as in the topic", show(document["name"])))
        try:
            flow = from_plain(document, self.flows.registry, what=what)
        except DocumentError as error:
            raise DocumentError(what, [*problems, *error.problems]) from None
        if problems:
            raise DocumentError(what, problems)
        return flow

    async def _done(
        self, what: str, change: Awaitable[Mapping[str, Any]], write: tuple[str, bytes, MqttRequest | None]
    ) -> dict[str, Any]:
        """The answer to a document, once it is carried out or refused. `write`: its topic below the gateway's own, its
        payload, and the request with which it came."""
        try:
            answer = {"accepted": True, "errors": [], **await change}
            await self.accepted.add(*write)
            return answer
        except EdgertError as error:
            log.warning("%s is refused: %s", what, error)
            return self._refusal(error)
        except Exception as error:
            log.exception("%s could not be carried out", what)
            return self._refusal(EdgertError(f"an unforeseen fault: {error!r}"))

    def _refusal(self, error: EdgertError) -> dict[str, Any]:
        problems = (
            error.problems if isinstance(error, DocumentError) else (Problem("", "to be carried out", str(error)),)
        )
        errors = [{"path": p.path, "expected": p.expected, "got": p.got} for p in problems]
        return {"accepted": False, "errors": errors}

    def _answer(self, topic: str, answer: Mapping[str, Any], request: MqttRequest | None = None) -> None:
        self.answer(topic, json.dumps(answer).encode(), request)

    # -- models

    async def _model(self, name: str, payload: bytes, request: MqttRequest | None, *, of_fleet: bool = False) -> None:
        async def change() -> dict[str, Any]:
            if payload:
                document = await asyncio.to_thread(read_untrusted, payload, format="json", what=f"model {name}")
                operators = await self.flows.models.offer_untrusted(name, document, of_fleet=of_fleet)
                return {"version": document.get("version", 0), "operators": operators}
            return {"removed": True, "operators": await self.flows.models.forget(name, of_fleet=of_fleet)}

        write = f"{'@' if of_fleet else ''}models/{name}", payload, request
        answer = await self._done(f"model {show(name)}", change(), write)
        answer["digest"] = digest(payload)
        self._answer(f"{self.base}/models/{name}/state", answer)

    # -- settings and commands

    async def _config(self, payload: bytes, request: MqttRequest | None) -> None:
        async def change() -> Mapping[str, Any]:
            added = await self.apply_settings(read_untrusted(payload, what="config") if payload else {})
            self.config_version += 1
            return added

        answer = await self._done("a config", change(), ("config", payload, request))
        answer["version"] = self.config_version
        answer["digest"] = digest(payload)
        self._answer(f"{self.base}/config/state", answer)

    async def _command(self, verb: str, payload: bytes, request: MqttRequest | None) -> None:
        command = self.commands.get(verb)
        if command is None:
            answer: Mapping[str, Any] = {"error": f"expected one of {', '.join(self.commands)}, got {show(verb)}"}
        else:
            try:
                arguments = read_untrusted(payload, format="json", what=f"command {verb}") if payload.strip() else {}
                answer = await command(arguments)
            except EdgertError as error:
                answer = {"error": str(error)}
            except Exception as error:
                answer = {"error": f"an unforeseen fault: {error!r}"}
                log.exception("command %s could not be carried out", show(verb))
        if request is not None:
            self._answer(request.topic, answer, request)
