"""How many messages the sensors' broker sends before some are acknowledged: there input stops until a checkpoint.

MQTT tells a client nothing of it: it may be any number up to the Receive Maximum that the client allows (65,535), in
MQTT 3.1.1 any number at all. So it is found out: what has stood still with so many messages open, and goes on as soon
as they are acknowledged, again and again after pauses of any length, was held back by the broker.
"""

from __future__ import annotations

import logging
from typing import Final

log = logging.getLogger(__name__)

UNKNOWN: Final = 65_535
"""The Receive Maximum: more than that no broker may send."""
OF_MOSQUITTO_311: Final = 20
"""The window that is assumed in MQTT 3.1.1 until more messages are open: Mosquitto's `max_inflight_messages`."""
TIMES: Final = 3
"""So often acknowledgements must have set input going again that had stood still."""
STILL_S: Final = 0.1
"""How long nothing must have come before; then for twice as long as the last time, or after a long pause so long."""
LONG_S: Final = 0.5
IN_VAIN: Final = 6
"""So many looks that tell nothing, since something comes before the acknowledgements, are enough."""
PAID_BY: Final = 4
"""So many other checkpoints, and there may be one look more: each costs the card a write."""
AT_ONCE: Final = 0.2
"""As a part of that pause: later it is chance that something comes."""
_SOON_S: Final = 0.01
UNLIKE: Final = 1.4
"""One pause must be so many times the last: what comes every second comes at once after each pause of nearly that."""
NEARLY: Final = 1.25
"""Mosquitto goes somewhat beyond a small window, by more or less."""
UNEVEN: Final = 3.0
"""On a busy machine further, from pause to pause: more comes while it reads the acknowledgements."""
UNEVEN_LEAST: Final = 10
"""Messages: with fewer, chance makes such differences."""
TIMES_UNEVEN: Final = 5
"""So many pauses then, for chance could bring that about more easily."""
FAR: Final = 3
"""So many looks in vain, and pauses must be so many times as long, for the broker may be far away or slow."""


class BrokerWindow:
    """The in-flight window of one broker, as far as it was observed. Times are monotonic seconds; `count`: messages
    that are open, neither acknowledged nor (QoS 2) completed."""

    def __init__(self, known: int = 0) -> None:
        """`known`: its size, so that nothing has to be found out; 0: it is not."""
        self._known = known
        self.size = UNKNOWN
        self.asked = 0
        """Checkpoints that were asked for since it was half used, or to find it out."""
        self._firm = True
        """True if `size` was seen, or is the most that there can be."""
        self._most: float = UNKNOWN
        """With more messages open that is not its window."""
        self._seen = 0
        """How many such pauses; -1: there is no reason to wait for any."""
        self._found: list[int] = []
        """Messages that were open in each of these."""
        self._came_at = 0.0
        self._acknowledged_at = 0.0
        self._stood = 0
        """Messages that were open in a pause that acknowledgements have ended, until something comes."""
        self._paused_s = 0.0
        self._counted_s = 0.0
        """The last pause that was counted."""
        self._looked_at = -1.0
        """When that had come which stood still when a checkpoint was asked for to see whether more comes."""
        self._looks = 0.0
        """Checkpoints that were asked for to see that, less those that others have paid for."""
        self._asks = False
        """True if one was asked for since the last acknowledgements."""

    @property
    def met(self) -> int:
        """The size, if the broker has one that is less than what there can be; else 0."""
        return self.size if self.size < UNKNOWN else 0

    def connected(self, five: bool) -> None:
        """Its settings may be others now."""
        self.size, self._firm = (UNKNOWN, True) if five else (OF_MOSQUITTO_311, False)
        self._begin_anew()
        self._stood, self._looks = 0, 0.0
        if self._known:
            self.size, self._firm, self._seen = self._known, True, -1
        self._most = self.size * (NEARLY if self._known else 1)

    def came(self, count: int, now: float) -> None:
        """Messages came; `count` with them."""
        if self._stood:
            self._judge(now - self._acknowledged_at <= AT_ONCE * self._paused_s)
        self._came_at = now
        if count > self._most:
            self.size, self._firm, self._most, self._looks = UNKNOWN, True, UNKNOWN, 0.0
            self._begin_anew()

    def acknowledged(self, count: int, now: float) -> None:
        """Acknowledgements were sent; `count` before them."""
        if not self._asks:
            self._looks = max(0.0, self._looks - 1 / PAID_BY)
        self._asks = False
        self._paused_s, self._acknowledged_at = now - self._came_at, now
        self._stood = count if count and self._paused_s >= STILL_S else 0

    def _judge(self, at_once: bool) -> None:
        stood, self._stood = self._stood, 0
        least = min([*self._found, stood])
        if self._seen < 0 or max([*self._found, stood]) > least * (UNEVEN if least >= UNEVEN_LEAST else NEARLY):
            self._begin_anew()
        long = self._paused_s >= self._patience_s()
        unlike = max(self._paused_s, self._counted_s) > UNLIKE * min(self._paused_s, self._counted_s)
        if not at_once:
            self._seen = -1
            return
        if long and unlike:
            self._seen, self._counted_s = self._seen + 1, self._paused_s
            self._found.append(stood)
        if stood == self.size and not self._firm:
            self._found = [stood]
            self._learn()
        elif self._found and self._seen >= (TIMES if max(self._found) <= NEARLY * min(self._found) else TIMES_UNEVEN):
            self._learn()

    def _begin_anew(self) -> None:
        self._seen, self._found, self._counted_s = 0, [], 0.0

    def _learn(self) -> None:
        size = min(self._found)
        if not self._firm or size != self.size:
            log.warning(
                "the sensors' broker sends no more than %d messages before some are acknowledged, so there is a "
                "checkpoint for every %d: to spare the card raise its max_inflight_messages (Mosquitto) or "
                "mqtt.max_inflight (EMQX)",
                size, max(1, size // 2),
            )  # fmt: skip
        self.size, self._firm, self._seen, self._most = size, True, -1, NEARLY * max(self._found)

    def full(self, count: int, now: float) -> bool:
        """True if a checkpoint is due: half of the window is used, or it is to be seen whether more comes then. To be
        asked when messages have come, and when `look_in` says."""
        due = self._firm and self._half(count)
        if not due and self._wonders(count) and now - self._came_at >= self._patience_s():
            self._looked_at, self._looks, due = self._came_at, self._looks + 1, True
        self.asked += due and not self._asks
        self._asks |= due
        return due

    def look_in(self, count: int, now: float) -> float | None:
        """In how many seconds to ask `full` again, if nothing comes meanwhile; None: not before something does."""
        return max(_SOON_S, self._came_at + self._patience_s() - now) if self._wonders(count) else None

    def _half(self, count: int) -> bool:
        return count * 2 >= self.size

    def _wonders(self, count: int) -> bool:
        """True if it matters that nothing more comes."""
        reason = (self._seen >= 0 and self._looks <= IN_VAIN - 1) or (self._half(count) and not self._firm)
        return reason and count > 0 and self._looked_at < self._came_at

    def _patience_s(self) -> float:
        if self._seen > 0 and self._counted_s < LONG_S:
            return 2 * self._counted_s
        return STILL_S if self._looks < FAR else FAR * STILL_S
