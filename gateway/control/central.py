"""The gateway's connection to the central broker, and the queues of what comes by it and of answers that go by it.

Documents, commands, questions and acknowledgements have a queue each: a document that waits for a full disk must not
keep acknowledgements from freeing the outbox, nor a command that waits for a flow keep a question from its answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import edgert
from edgert.core.errors import show
from edgert.core.log_sampling import is_told
from edgert.core.settings.gateway import GatewaySettings
from edgert.mqtt.clients.control_plane import ControlConnection, MqttRequest
from gateway.control.mailbox import Incoming, Mailbox

if TYPE_CHECKING:
    from gateway.control.mqtt_api import MqttApi
    from gateway.flows.flows import Flows
    from gateway.uplink.uplink import Uplink

log = logging.getLogger(__name__)

TOO_MANY, UNHANDLED = "too many control messages", "control message that could not be handled"
UNANSWERED: Final = "answer to a control message that could not be sent whole"
Inbound = asyncio.Queue[Incoming] | Mailbox
MOST_WAITING: Final = 1_000
AGAIN_S: Final = 0.5
"""An answer that the connection did not take is tried again after so long."""


def births(flows: Sequence[str]) -> Iterator[tuple[bytes, str]]:
    """The birth message of a gateway, and what it is without: the whole one, and what may be sent in its place."""
    birth = {"state": "online", "version": edgert.__version__}
    yield json.dumps(birth | {"flows": flows}).encode(), ""
    yield json.dumps(birth).encode(), "the names of its flows"
    yield b'{"state":"online"}', "version and names of its flows"


def shortened(answer: bytes, why: str) -> bytes:
    """An answer without its lists and objects, which says as `error` why they are missing."""
    kept = {name: value for name, value in json.loads(answer).items() if not isinstance(value, list | dict)}
    return json.dumps(kept | {"error": why}).encode()


class CentralConnection:
    """Lives on the daemon's loop, but for `message_untrusted`. Without `connect` it sends and receives nothing."""

    def __init__(self, settings: GatewaySettings, gateway: str) -> None:
        self._settings, self._gateway = settings, gateway
        self._status_topic = f"edgert/v1/{settings.gateway.fleet}/{gateway}/status"
        self.connection: ControlConnection | None = None
        self.drops: Counter[str] = Counter()
        """Messages that were dropped, by reason."""
        self.documents: Inbound = Mailbox()
        self.commands: Inbound = asyncio.Queue(MOST_WAITING)
        self.questions: Inbound = asyncio.Queue(MOST_WAITING)
        self.acknowledgements: Inbound = asyncio.Queue(MOST_WAITING)
        self.answers = Mailbox()
        """Answers until the connection takes them: of each topic the newest. The birth is written when it is sent."""
        self.again_s = AGAIN_S
        self.loop: asyncio.AbstractEventLoop | None = None
        self._left_out = ""
        """The parts that the newest birth lacks."""

    # -- life

    def connect(self, api: MqttApi, uplink: Uplink, flows: Flows) -> None:
        """Makes the connection; it is begun by `start`."""
        self._api, self.uplink, self._flows = api, uplink, flows
        api.write_back = self.write_back
        if self._settings.central.enabled:
            self.connection = ControlConnection(
                self._settings.central,
                f"edgert-{self._gateway}-central",
                subscriptions=[*api.subscriptions, (uplink.acks_topic, 1)],
                will=self._death("connection lost"),
                on_message=self.message_untrusted,
                on_retained=self._retained_untrusted,
                on_connected=lambda: self._on_loop(self._connected),
                on_disconnected=lambda reason: self._on_loop(uplink.disconnected),
                on_refused=lambda reason: self._on_loop(lambda: uplink.refused(reason)),
            )

    def start(self) -> None:
        """On the loop."""
        self.loop = asyncio.get_running_loop()
        if self.connection:
            self.connection.start()

    async def stop(self) -> None:
        """Says good-bye."""
        if self.connection:
            await asyncio.to_thread(self.connection.stop, self._death("stopped"))

    def serving(self, files: asyncio.Task[None]) -> list[Coroutine[Any, Any, None]]:
        """Returns a coroutine per queue that works it off until cancelled. Documents of the broker wait for those of
        `files`, over which they take precedence."""
        handle = self._api.handle_untrusted
        return [
            self._serve_documents(files),
            self.serve(self.commands, handle),
            self.serve(self.questions, handle),
            self.serve(self.acknowledgements, self._acknowledged),
            self.serve(self.answers, self._send),
        ]

    # -- out

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> bool:
        """False if there is no connection, or no room in its queue."""
        return bool(self.connection and self.connection.publish(topic, payload, retain=retain))

    def write_back(self, topic: str, payload: bytes, request: MqttRequest) -> None:
        """Publishes a retained document. One for which there is no room is written back at a later connection."""
        if self.connection:
            self.connection.publish(topic, payload, retain=True, request=request, answer_to=request.topic)

    def answer(self, topic: str, payload: bytes, request: MqttRequest | None = None) -> None:
        """Publishes a message as soon as the connection takes it; retained, unless it answers a request."""
        try:
            if self.connection:
                self.answers.put_nowait((topic, payload, request))
        except asyncio.QueueFull:
            self._unanswered(topic, "too many wait")

    async def _send(self, topic: str, payload: bytes, request: MqttRequest | None) -> None:
        if topic == self._status_topic:
            await self._send_birth()
        elif why := await self._refused(topic, payload, request):
            self._unanswered(topic, why)
            await self._refused(topic, shortened(payload, why), request)

    async def _refused(self, topic: str, payload: bytes, request: MqttRequest | None) -> str:
        """Sends an answer, as soon as there is room for it; or returns why the broker would not take it."""
        assert self.connection is not None
        while not (why := self.connection.refuses(topic, payload)):
            if self.connection.publish(topic, payload, retain=request is None, request=request):
                return ""
            await asyncio.sleep(self.again_s)
        return why

    def _unanswered(self, topic: str, why: str) -> None:
        self.drops[UNANSWERED] += 1
        if is_told(count := self.drops[UNANSWERED]):
            log.error("an answer on %s could not be sent whole: %s (%d so far)", show(topic), why, count)

    def connects(self) -> int:
        """The number of connections so far."""
        return self.connection.connects if self.connection else 0

    def max_packet_bytes(self, topic: str) -> int:
        """The broker's limit on a topic; 0: there is no broker."""
        return self.connection.limits.most(topic) if self.connection else 0

    def _connected(self) -> None:
        self.answer(self._status_topic, b"")
        self.uplink.connected()

    async def _send_birth(self) -> None:
        """Publishes the birth. The log tells the parts for which the broker's limit has no room at the moment."""
        assert self.connection is not None
        left_out = "all of it"
        for payload, lacking in births(sorted(self._flows.runs)):
            fits = self.connection.limits.fits(self._status_topic, payload)
            if fits and not await self._refused(self._status_topic, payload, None):
                left_out = lacking
                break
        if left_out and left_out != self._left_out:
            log.warning(
                "the retained status is above the central broker's limit of %d bytes on %s: published without %s",
                self.max_packet_bytes(self._status_topic), self._status_topic, left_out,
            )  # fmt: skip
        self._left_out = left_out

    def _death(self, reason: str) -> tuple[str, bytes]:
        return self._status_topic, json.dumps({"state": "offline", "reason": reason}).encode()

    # -- in

    def message_untrusted(self, topic: str, payload: bytes, request: MqttRequest | None) -> None:
        """On paho's thread."""
        queue = self.documents
        if topic == self.uplink.acks_topic:
            queue = self.acknowledgements
        elif topic.startswith(f"{self._api.base}/cmd/"):
            queue = self.questions if topic.endswith("/cmd/status") else self.commands

        def enter() -> None:
            try:
                queue.put_nowait((topic, payload, request))
            except asyncio.QueueFull:
                self.drops[TOO_MANY] += 1
                if is_told(dropped := self.drops[TOO_MANY]):
                    log.error(
                        "more than %d control messages wait; one on %s is dropped (%d so far)",
                        queue.maxsize, topic, dropped,
                    )  # fmt: skip

        self._on_loop(enter)

    def _retained_untrusted(self, topic: str, payload: bytes, request: MqttRequest | None) -> None:
        """A retained acknowledgement may be older than the tables: the answer to our hello counts. A retained document
        may be older than the one that was accepted."""

        def enter() -> None:
            if not self._api.refuse_older(topic, payload, request):
                self.message_untrusted(topic, payload, request)

        if topic != self.uplink.acks_topic:
            self._on_loop(enter)

    def _on_loop(self, call: Callable[[], None]) -> None:
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(call)

    async def _acknowledged(self, topic: str, payload: bytes, request: MqttRequest | None) -> None:
        await self.uplink.acknowledged_untrusted(payload)

    async def _serve_documents(self, files: asyncio.Task[None]) -> None:
        await files
        await self.serve(self.documents, self._api.handle_untrusted)

    async def serve(self, queue: Inbound, handle: Callable[[str, bytes, MqttRequest | None], Awaitable[None]]) -> None:
        """Handles the messages of a queue, one after the other, until cancelled."""
        while True:
            topic, payload, request = await queue.get()
            try:
                await handle(topic, payload, request)
            except Exception:
                self.drops[UNHANDLED] += 1
                if is_told(count := self.drops[UNHANDLED]):
                    log.exception("a control message on %s could not be handled (%d so far)", topic, count)
