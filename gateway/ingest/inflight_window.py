"""The in-flight window of the sensors' broker: how many messages it sends before some are acknowledged.

MQTT does not tell it to a client. Acknowledgements wait for a checkpoint, so a small window would stop the input until
the next one. The rule: the window is found when input stood still at about the same count three times, and went on
each time as soon as a checkpoint had acknowledged it. Then a checkpoint is due whenever half of the window is used.
"""

from __future__ import annotations

import logging
from typing import Final

log = logging.getLogger(__name__)

RECEIVE_MAXIMUM: Final = 65_535  # of MQTT 5, section 3.1.2.11.3: more than that no broker may send
SUPPOSED: Final = 20
"""Tried first: Mosquitto's `max_inflight_messages` in MQTT 3.1.1; EMQX (32) is near it in both versions."""
TIMES: Final = 3
"""So often input must have stood still, and gone on when acknowledged."""
STILL_S: Final = 0.1
"""Input stands still if nothing comes for so long: twice as long at the second time, four times at the third, so that a
sensor that sends at regular intervals is not taken for a window. It goes on if half comes again within that time."""
BEYOND: Final = 3
"""A broker that sends so many times the window, after a pause and without acknowledgements, has another one. Just after
them that tells nothing: Mosquitto 2.0.11 with a window of 20 was seen to send 66 messages, next 964."""
FOUND: Final = (
    "the sensors' broker sends no more than %d messages before some are acknowledged, so there is a checkpoint for "
    "every %d: to spare the card raise its max_inflight_messages (Mosquitto) or mqtt.max_inflight (EMQX); if that is "
    "not its window, set sensors.window"
)


class InflightWindow:
    """Finds the window of one broker. Times are monotonic seconds; `count` is the number of open messages: neither
    acknowledged nor (QoS 2) completed."""

    def __init__(self, known: int = 0) -> None:
        """`known`: the setting `sensors.window`, messages; 0: to be found out."""
        self._known = known
        self.asked = 0  # checkpoints
        self._came_at = self._acknowledged_at = 0.0
        self.connected()

    @property
    def met(self) -> int:
        """The window, messages; 0 if it is not found, or is as large as MQTT allows."""
        return self._size if self._firm and self._size < RECEIVE_MAXIMUM else 0

    def connected(self) -> None:
        """Begins anew: the broker's settings may have changed."""
        self._size, self._times = self._known or SUPPOSED, TIMES if self._known else 0
        self._stood = 0  # open messages when input stood still, until it is known if it goes on
        self._burst = 0  # open messages when input last came without a pause
        self._asks = False  # until the next acknowledgements

    def came(self, count: int, now: float) -> None:
        """Messages came; `count` includes them."""
        if now - max(self._came_at, self._acknowledged_at) <= STILL_S:
            self._burst = count
        elif not self._firm and count - self._burst > BEYOND * self._size:
            self._size, self._times = RECEIVE_MAXIMUM, 0
        self._came_at = now
        if self._stood:
            self._judge(count, now)

    def acknowledged(self, count: int, now: float) -> None:
        """Acknowledgements were sent; `count` is the number before them."""
        stood_still = now >= self._came_at + self._patience_s
        if self._asks and not self._firm and not stood_still:
            self._size, self._times = RECEIVE_MAXIMUM, 0
        self._stood = count if stood_still and not self._firm else 0
        self._asks, self._acknowledged_at = False, now

    def full(self, count: int, now: float) -> bool:
        """True if a checkpoint is due. To be asked when messages have come, and when `look_in` says."""
        due = count * 2 >= (self._size if self._firm else RECEIVE_MAXIMUM)
        due |= self._may_be_full(count) and now >= self._came_at + self._patience_s
        self.asked += due and not self._asks
        self._asks |= due
        return due

    def look_in(self, count: int, now: float) -> float | None:
        """In how many seconds to ask `full` again if nothing comes meanwhile; None: not before something does."""
        return max(0.0, self._came_at + self._patience_s - now) if self._may_be_full(count) else None

    def _may_be_full(self, count: int) -> bool:
        return not self._firm and not self._asks and count >= self._size

    @property
    def _firm(self) -> bool:
        return self._times >= TIMES

    @property
    def _patience_s(self) -> float:
        return STILL_S * 2.0**self._times

    def _judge(self, count: int, now: float) -> None:
        """Input had stood still and was acknowledged; now `count` messages are open."""
        stood = self._stood
        if now - self._acknowledged_at > STILL_S:
            self._stood = 0
            if stood >= self._size:  # the broker had nothing more to send
                self._size, self._times = RECEIVE_MAXIMUM, 0
        elif count * 2 >= min(stood, self._size):
            self._stood = 0
            same = self._times > 0 and self._size <= BEYOND * stood
            self._size, self._times = (min(self._size, stood), self._times + 1) if same else (stood, 1)
            if self._firm:
                log.warning(FOUND, self._size, max(1, self._size // 2))
