"""Keep-alive (section 3.1.2.10): when to ping, and when silence means that the broker is gone."""

from __future__ import annotations

from enum import Enum


class KeepaliveVerdict(Enum):
    FINE = 0
    PING = 1
    GONE = 2


class KeepAlive:
    """Times in seconds on the caller's clock. An interval of 0 never pings."""

    __slots__ = ("_interval_s", "_pinged_at", "_timeout_s", "received_at", "sent_at")

    def __init__(self, interval_s: float, timeout_s: float, now: float) -> None:
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._pinged_at: float | None = None
        self.sent_at = self.received_at = now

    def answered(self) -> None:
        """PINGRESP has come."""
        self._pinged_at = None

    def tick(self, now: float, reading: bool) -> KeepaliveVerdict:
        """The verdict at `now`; a PING is taken as sent. While not `reading`, silence proves nothing."""
        if not self._interval_s:
            return KeepaliveVerdict.FINE
        if not reading:
            self.received_at = now
        if self._pinged_at is not None:
            silent_s = now - max(self._pinged_at, self.received_at)
            return KeepaliveVerdict.GONE if silent_s >= self._timeout_s else KeepaliveVerdict.FINE
        # A receiver's silence counts too, so that a broker that vanished is noticed by one that only sends.
        if now - min(self.sent_at, self.received_at) < 0.75 * self._interval_s:
            return KeepaliveVerdict.FINE
        self._pinged_at = self.sent_at = now
        return KeepaliveVerdict.PING
