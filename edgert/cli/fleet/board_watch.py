"""The boards of a fleet, as they tell of their updates over MQTT, and the requests to them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Final

from edgert.boards.board_state import BoardState, state_untrusted
from edgert.boards.requests import UpdateRequest
from edgert.boards.waves import SeenBoard
from edgert.core.errors import show
from edgert.core.ids import GATEWAY_NAME
from edgert.core.settings.connection import Connection
from edgert.mqtt.clients.control_plane import ControlConnection, MqttRequest

MOST_BOARDS: Final = 10_000
MOST_REFUSAL: Final = 1_000
"""Characters of a refusal that are shown."""


class BoardWatch:
    """Collects what comes, on the connection's thread; `seen` is for any thread."""

    def __init__(self, settings: Connection, fleet: str, token: str, on_change: Callable[[], None]) -> None:
        """`token` is random: answers to others have another one."""
        self._fleet, self._token, self._on_change = fleet, token, on_change
        self._lock = threading.Lock()
        self._online: dict[str, bool] = {}
        self._states: dict[str, BoardState] = {}
        self._refusals: dict[str, str] = {}
        self._taken: set[str] = set()
        self.listening = False
        """True once the broker has taken our subscriptions."""
        self.connection = ControlConnection(
            settings,
            f"edgert-update-{token[:8]}",
            subscriptions=[(self._topic("+", below), 1) for below in ("status", "update/state", f"answers/{token}")],
            on_message=self.message_untrusted,
            on_subscribed=self._subscribed,
            on_disconnected=lambda reason: on_change(),
        )

    def _topic(self, board: str, below: str) -> str:
        return f"edgert/v1/{self._fleet}/{board}/{below}"

    def boards(self) -> list[str]:
        """Gateways that are connected, and boards with slots that are not."""
        with self._lock:
            return sorted(board for board, online in self._online.items() if online or board in self._states)

    def seen(self, board: str) -> SeenBoard:
        with self._lock:
            refusal, taken = self._refusals.get(board, ""), board in self._taken
            return SeenBoard(self._online.get(board, False), self._states.get(board), refusal, taken)

    def ask(self, board: str, request: UpdateRequest) -> bool:
        """Sends a request. False if there is no connection now."""
        answer_to = self._topic(board, f"answers/{self._token}")
        return self.connection.publish(self._topic(board, "cmd/update"), request.text().encode(), answer_to=answer_to)

    # -- on the connection's thread

    def _subscribed(self) -> None:
        self.listening = True
        self._on_change()

    def message_untrusted(self, topic: str, payload: bytes, request: MqttRequest | None) -> None:
        board, _, below = topic.removeprefix(f"edgert/v1/{self._fleet}/").partition("/")
        with self._lock:
            if GATEWAY_NAME.fullmatch(board) and (board in self._online or len(self._online) < MOST_BOARDS):
                self._take_untrusted(board, below, payload)
        self._on_change()

    def _take_untrusted(self, board: str, below: str, payload: bytes) -> None:
        if below == "update/state":
            self._online.setdefault(board, False)
            if (state := state_untrusted(payload)) is not None:
                self._states[board] = state
            return
        try:
            plain = json.loads(payload) if payload else {}
        except (ValueError, RecursionError):
            plain = None
        if below == "status":
            self._online[board] = isinstance(plain, dict) and plain.get("state") == "online"
        elif not isinstance(plain, dict) or "asked" not in plain:
            error = plain.get("error") if isinstance(plain, dict) else None
            told = error if isinstance(error, str) else f"expected an answer to the request, got {show(payload)}"
            self._refusals[board] = told[:MOST_REFUSAL]
        else:
            self._taken.add(board)
            self._refusals.pop(board, None)
