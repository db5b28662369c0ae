"""The version of MQTT of the next connection; for the client of the sensors' broker and that of the control plane."""

from __future__ import annotations

import math

from edgert.mqtt.packets.packets import V5, V311

PROTOCOLS = {V5: "5", V311: "3.1.1"}
PROBE_TIMEOUT_S = 3.0
"""How long `auto` waits for an answer to version 5. Some brokers (amqtt) read such a CONNECT as if it were 3.1.1, take
properties for lengths and wait for bytes that never come."""
UNSUPPORTED = (0x01, 0x84)
REMEMBER_S = 600.0
"""How long `auto` stays with 3.1.1 after a broker refused version 5, or left it without an answer."""


class Versions:
    """With `auto`: 5, unless 5 was just tried and the broker does not seem to know it; after 3.1.1 it is 5 again,
    unless the broker showed lately that it does not know 5. Times are monotonic.

    A broker that has spoken 5 knows it: whatever it does then means something else (a restart), and 3.1.1 with its
    small window must not be the answer, unless it says so itself.
    """

    def __init__(self, protocol: str) -> None:
        """`protocol`: '5', '3.1.1' or 'auto'."""
        self.level = V311 if protocol == "3.1.1" else V5
        self._auto = protocol == "auto"
        self._spoke_5 = False
        self._old_until = -math.inf

    def knows_5(self) -> None:
        """The broker has spoken 5, maybe to an earlier process."""
        self._spoke_5 = True

    @property
    def protocol(self) -> str:
        """The version in use, or of the next connection: '5' or '3.1.1'."""
        return PROTOCOLS[self.level]

    @property
    def probing(self) -> bool:
        """True if 5 is tried on a broker that may not know it."""
        return self._auto and self.level == V5 and not self._spoke_5

    def accepted(self) -> None:
        """The broker took the CONNECT of this version."""
        self._spoke_5 = self._spoke_5 or self.level == V5

    def refused(self, reason: int, now: float) -> bool:
        """The broker refused it. Whether to connect again at once, in another version."""
        unsupported = reason in UNSUPPORTED
        return self._next(now, fall_back=unsupported, remember=unsupported)

    def ended(self, now: float, *, unanswered: bool = False, silent: bool = False) -> bool:
        """The connection ended, or there was none. `unanswered`: it ended without CONNACK (some brokers close without a
        word on a version that they do not know). `silent`: the probe's time passed without one. Whether to connect
        again at once, in another version."""
        return self._next(now, fall_back=(unanswered or silent) and not self._spoke_5, remember=silent)

    def _next(self, now: float, fall_back: bool, remember: bool) -> bool:
        if not self._auto:
            return False
        fall_back = fall_back and self.level == V5
        if fall_back and remember:
            self._old_until = now + REMEMBER_S
        self.level = V311 if fall_back or now < self._old_until else V5
        return fall_back
