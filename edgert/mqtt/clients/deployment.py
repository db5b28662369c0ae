"""One write of a flow's document to a gateway, and the gateway's answer to it (docs/mqtt-interface.md).

Nothing here waits: messages move a `Deployment` on, and who uses it looks, or is woken by `on_change`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from edgert.core.errors import Problem, show
from edgert.core.ids import GATEWAY_NAME
from edgert.core.settings.connection import Connection
from edgert.flow.versions.kept_state import NOTHING_REPLACED, KeptState, kept_state_untrusted
from edgert.mqtt.clients.control_plane import ControlConnection, MqttRequest

MOST_GATEWAYS: Final = 10_000
"""Gateways of one fleet that are remembered."""


def digest(payload: bytes) -> str:
    """Says which write an answer is about: the first 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(payload).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class DeploymentAnswer:
    """A gateway's answer to a write."""

    accepted: bool
    version: int | None = None
    problems: tuple[Problem, ...] = ()
    running_version: int | None = None
    """Version that runs now; None: the flow does not run."""
    digest: str = ""
    existed: bool = True
    """True if a removal found the flow. An older gateway does not say so."""
    cautions: tuple[str, ...] = ()
    """Sentences about risks of the flow."""
    state: KeptState = NOTHING_REPLACED
    """The fate of the state of the version before."""


def read_answer_untrusted(payload: bytes) -> DeploymentAnswer | None:
    """The answer in a flow's state; None if it is none."""
    try:
        state = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    if not isinstance(state, dict) or not isinstance(state.get("accepted"), bool):
        return None
    errors = state.get("errors")
    problems = tuple(_problem(e) for e in errors if isinstance(e, dict)) if isinstance(errors, list) else ()
    accepted, told = state["accepted"], state.get("digest")
    if not accepted and not problems:
        why = str(state.get("error") or "a refusal without a reason")[:1000]
        problems = (Problem("document", "an accepted document", why),)
    version, running = _number(state.get("version")), _number(state.get("running_version"))
    existed = state.get("existed", version is not None or not state.get("removed")) is not False
    found = state.get("cautions")
    cautions = tuple(str(one)[:1000] for one in found) if isinstance(found, list) else ()
    digest_told = told if isinstance(told, str) else ""
    return DeploymentAnswer(
        accepted, version, problems, running, digest_told, existed, cautions, kept_state_untrusted(state.get("state"))
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _problem(error: Mapping[str, Any]) -> Problem:
    path, expected, got = (str(error.get(key, "?"))[:1000] for key in ("path", "expected", "got"))
    return Problem(path or "flow", expected, got)


def comparison_untrusted(payload: bytes) -> KeptState | str:
    """The answer to a comparison, or why there is none."""
    try:
        answer = json.loads(payload)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or "state" not in answer:
        said = answer.get("error") if isinstance(answer, dict) else None
        return str(said or f"expected a comparison, got {show(payload)}")[:1000]
    return kept_state_untrusted(answer["state"])


class Deployment:
    """Publishes `payload` (empty: removes the flow) as soon as it is connected and knows the gateway.

    `written`: random bytes, which tell this write from an earlier one of the same document.
    Without a `gateway` it looks who there is (`seen`) and waits for `choose`. Writes again after each reconnect until
    the answer is there; that does no harm, since a document that runs already changes nothing.
    """

    def __init__(
        self,
        settings: Connection,
        client_id: str,
        fleet: str,
        flow: str,
        payload: bytes,
        *,
        gateway: str = "",
        written: bytes = b"",
        on_change: Callable[[], None] = lambda: None,
        compare: str = "",
    ) -> None:
        """`compare`: a random token. With it nothing is written: the gateway is asked what would become of the state
        of the running version, and `compared` gets the answer."""
        self.gateway = gateway
        self.sent = False
        self.listening = False
        """True if the broker has taken our subscriptions: `seen` fills from now on."""
        self.seen: dict[str, str] = {}
        """Gateway → "online" or "offline", as the broker keeps it."""
        self.answer: DeploymentAnswer | None = None
        self.compared: KeptState | str | None = None
        """The answer to `compare`; a text says why there is none."""
        self._compare = compare
        self._fleet, self._flow, self._payload = fleet, flow, payload
        self._digest = digest(payload)
        self._written = written
        self._on_change = on_change
        whose = gateway or "+"
        self.connection = ControlConnection(
            settings,
            client_id,
            subscriptions=[
                (self._topic(whose, "status"), 1),
                (self._topic(whose, f"answers/{compare}" if compare else f"flows/{flow}/state"), 1),
            ],
            on_message=self.message_untrusted,
            on_retained=self.retained_untrusted,
            on_subscribed=self.subscribed,
            on_disconnected=lambda reason: on_change(),
        )

    def _topic(self, gateway: str, rest: str) -> str:
        return f"edgert/v1/{self._fleet}/{gateway}/{rest}"

    @property
    def online(self) -> list[str]:
        return sorted(name for name, state in self.seen.items() if state == "online")

    def start(self) -> None:
        """Begins to connect and returns at once."""
        self.connection.start()

    def close(self) -> None:
        self.connection.stop()

    def choose(self, gateway: str) -> None:
        """Says which gateway it is for."""
        self.gateway = gateway
        if self.listening:
            self._send()

    # -- on the connection's thread

    def subscribed(self) -> None:
        """Only now is it sent, so that the answer cannot come before we listen."""
        self.listening = True
        if self.gateway and self.answer is None and not self.connection.error:
            self._send()
        self._on_change()

    def _send(self) -> None:
        if self._compare:
            if self.connection.protocol != "5":
                self.compared = "the broker speaks no MQTT 5, by which alone a gateway can answer a question"
            topic, answer_to = (
                self._topic(self.gateway, "cmd/compare"),
                self._topic(self.gateway, f"answers/{self._compare}"),
            )
            self.sent = self.connection.publish(topic, self._payload, answer_to=answer_to) or self.sent
            return
        topic = self._topic(self.gateway, f"flows/{self._flow}")
        request = MqttRequest(f"{topic}/state", self._written)
        sent = self.connection.publish(topic, self._payload, retain=True, request=request, answer_to=request.topic)
        self.sent = sent or self.sent

    def retained_untrusted(self, topic: str, payload: bytes, request: MqttRequest | None) -> None:
        """A kept answer is one to an earlier write, even if that was the same document."""
        if topic.endswith("/status"):
            self.message_untrusted(topic, payload, request)

    def message_untrusted(self, topic: str, payload: bytes, request: MqttRequest | None) -> None:
        gateway, _, rest = topic.removeprefix(f"edgert/v1/{self._fleet}/").partition("/")
        if rest == "status":
            self._note_untrusted(gateway, payload)
        elif self._compare:
            if rest == f"answers/{self._compare}":
                self.compared = comparison_untrusted(payload)
        elif gateway == self.gateway:
            answer = read_answer_untrusted(payload)
            if answer is not None and answer.digest == self._digest:
                self.answer = answer
        self._on_change()

    def _note_untrusted(self, gateway: str, payload: bytes) -> None:
        """A gateway's birth or death. Other parts of the fleet (`@collector`) have a status too."""
        if not GATEWAY_NAME.fullmatch(gateway) or (gateway not in self.seen and len(self.seen) >= MOST_GATEWAYS):
            return
        try:
            state = json.loads(payload)["state"]
        except (ValueError, KeyError, TypeError, RecursionError):
            state = None
        if state in ("online", "offline"):
            self.seen[gateway] = state
        elif not payload:  # the broker's memory of it was wiped
            self.seen.pop(gateway, None)
        else:
            self.seen[gateway] = f"a state that is none: {show(state)}"
