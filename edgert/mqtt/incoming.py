"""The broker's messages at QoS 1 and 2: how they are answered, and which of QoS 2 have come before."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from edgert.mqtt import encode
from edgert.mqtt.packets import V5, Publishes, PublishRun


class Incoming:
    """Answers go to `write`."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.duplicates = 0
        """QoS 2 messages that came again after their PUBREC."""
        self._write = write
        self._answered: set[int] = set()
        """QoS 2 packet ids whose PUBREC was sent and whose PUBREL has not come."""

    def clear(self) -> None:
        """The broker has begun a new session."""
        self._answered.clear()

    def acknowledge(self, packets: Iterable[tuple[int, int]]) -> None:
        """PUBACK or PUBREC for (packet id, QoS), in order of arrival; QoS 0 is passed over."""
        ids: list[int] = []
        for packet_id, qos in packets:
            if qos == 1:
                ids.append(packet_id)
            elif qos == 2:
                self._write_pubacks(ids)
                self._answered.add(packet_id)
                self._write(encode.acknowledgement(encode.PUBREC, packet_id))
        self._write_pubacks(ids)

    def _write_pubacks(self, ids: list[int]) -> None:
        if ids:
            self._write(encode.pubacks(ids))
            ids.clear()

    def fresh(self, messages: Publishes) -> Publishes:
        """Those that have not come before."""
        if not self._answered:
            return messages
        return [m for m in messages if isinstance(m, PublishRun) or m.qos != 2 or not self.answered_before(m.packet_id)]

    def answered_before(self, packet_id: int) -> bool:
        """A QoS 2 message whose PUBREC was lost is answered again and not delivered again (section 4.3.3)."""
        if packet_id not in self._answered:
            return False
        self.duplicates += 1
        self._write(encode.acknowledgement(encode.PUBREC, packet_id))
        return True

    def released(self, packet_id: int, level: int) -> bool:
        """PUBREL has come, and gets its PUBCOMP. False if it is of no message that we know."""
        known = packet_id in self._answered
        self._answered.discard(packet_id)
        # A PUBREL may come for a PUBREC of before our restart; the broker wants its PUBCOMP all the same.
        reason = 0 if known or level != V5 else 0x92
        self._write(encode.acknowledgement(encode.PUBCOMP, packet_id, reason))
        return known
