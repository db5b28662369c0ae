"""Which version of MQTT the next connection speaks."""

from __future__ import annotations

from edgert.mqtt.packets.packets import V5, V311

PROTOCOLS = {V5: "5", V311: "3.1.1"}
PROBE_TIMEOUT_S = 3.0
"""How long `auto` waits for an answer to version 5. Some brokers (amqtt) read such a CONNECT as if it were 3.1.1, take
properties for lengths and wait for bytes that never come."""
UNSUPPORTED = (0x01, 0x84)


class Versions:
    """With `auto`: 5, unless 5 was just tried and the broker does not seem to know it; after 3.1.1 it is 5 again.

    A broker that has spoken 5 knows it: whatever it does then means something else (a restart), and 3.1.1 with its
    small window must not be the answer, unless it says so itself.
    """

    def __init__(self, protocol: str) -> None:
        """`protocol`: '5', '3.1.1' or 'auto'."""
        self.level = V311 if protocol == "3.1.1" else V5
        self._auto = protocol == "auto"
        self._spoke_5 = False

    def knows_5(self) -> None:
        """The broker has spoken 5, maybe to an earlier process."""
        self._spoke_5 = True

    @property
    def probing(self) -> bool:
        """True if 5 is tried on a broker that may not know it."""
        return self._auto and self.level == V5 and not self._spoke_5

    def accepted(self) -> None:
        """The broker took the CONNECT of this version."""
        self._spoke_5 = self._spoke_5 or self.level == V5

    def refused(self, reason: int) -> bool:
        """The broker refused it. Whether to connect again at once, in another version."""
        return self._next(fall_back=reason in UNSUPPORTED)

    def ended(self, unanswered: bool) -> bool:
        """The connection ended, `unanswered`: without CONNACK (some brokers close without a word on a version that they
        do not know). Whether to connect again at once, in another version."""
        return self._next(fall_back=unanswered and not self._spoke_5)

    def _next(self, fall_back: bool) -> bool:
        if not self._auto:
            return False
        fall_back = fall_back and self.level == V5
        self.level = V311 if fall_back else V5
        return fall_back
