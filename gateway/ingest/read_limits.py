"""Limits of input that waits for a checkpoint: at one a checkpoint is asked for, at the other reading stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from edgert.core.clock import Clock
from edgert.mqtt.clients.transport import MqttClient
from gateway.ingest.inbox import Inbox
from gateway.ingest.inflight_window import InflightWindow

UNCOMMITTED_BYTES: Final = 4_194_304
"""Input that waits for acknowledgement: half of the bound asks for a checkpoint, the bound stops reading."""


class ReadLimits:
    """Bounds uncommitted input of an inbox: asks for checkpoints, pauses the connection. On the daemon's loop."""

    def __init__(
        self,
        inbox: Inbox,
        client: MqttClient,
        clock: Clock,
        window: InflightWindow,
        wants_checkpoint: Callable[[], None],
    ) -> None:
        self._inbox, self._client, self._clock = inbox, client, clock
        self.window = window
        self._wants_checkpoint = wants_checkpoint
        self._look: asyncio.TimerHandle | None = None
        """For more messages, when none have come for a while."""
        self._paused_at: float | None = None
        """Since when (monotonic) nothing is read."""
        self._closed = False

    @property
    def paused_s(self) -> float:
        """For how long nothing has been read, since too much waits for acknowledgement; 0 while it is."""
        return 0.0 if self._paused_at is None else self._clock.monotonic() - self._paused_at

    def open_count(self) -> int:
        """Messages that count in the broker's window."""
        return len(self._inbox.owed) + len(self._inbox.completing)

    def check(self) -> None:
        """Asks for a checkpoint when half of a bound is used."""
        half = self._inbox.uncommitted_bytes * 2 >= UNCOMMITTED_BYTES
        if self.window.full(self.open_count(), self._clock.monotonic()) or half:
            self._wants_checkpoint()
        self.regulate()

    def regulate(self) -> None:
        """Stops reading while too much waits for acknowledgement, and goes on below that. To be called whenever that
        may have changed: while nothing is read, nothing that is read can set it going again."""
        if self._inbox.uncommitted_bytes >= UNCOMMITTED_BYTES and not self._closed:
            self._client.pause()
            if self._paused_at is None:
                self._paused_at = self._clock.monotonic()
        else:
            self._client.resume()
            self._paused_at = None

    def look_later(self) -> None:
        """Checks again when nothing has come for a while."""
        if (
            self._look is None
            and (wait_s := self.window.look_in(self.open_count(), self._clock.monotonic())) is not None
        ):
            self._look = asyncio.get_running_loop().call_later(wait_s, self._look_now)

    def _look_now(self) -> None:
        self._look = None
        if self._client.status.connected:
            self.check()
            self.look_later()

    def close(self) -> None:
        """Reading goes on: what comes from now on is not taken in."""
        self._closed = True
        self._client.resume()

    def stop(self) -> None:
        self._closed = True
        if self._look is not None:
            self._look.cancel()
