"""Packet identifiers for packets of ours."""

from __future__ import annotations

from collections.abc import Container

from edgert.mqtt.packets.packets import MAX_PACKET_ID
from edgert.mqtt.session.outgoing import PublishRefused


class PacketIds:
    """Identifiers from the greatest down. Brokers count up, and some (mochi-mqtt 2) do not tell our identifiers from
    theirs: they refuse a subscription under one that they use, and forget their message when we publish under its own.
    """

    def __init__(self, *holders: Container[int]) -> None:
        """`holders`: of the identifiers that are in use."""
        self._holders = holders
        self._last = 1

    def free(self) -> int:
        """The next identifier that no holder has. Raises `PublishRefused` if there is none."""
        for _ in range(MAX_PACKET_ID):
            self._last = (self._last - 2) % MAX_PACKET_ID + 1
            if not any(self._last in holder for holder in self._holders):
                return self._last
        raise PublishRefused("expected a free packet identifier, got none")
