"""paho's client with what its public face lacks: a window that may change, and a look at what is not acknowledged."""

from __future__ import annotations

from collections.abc import Collection

import paho.mqtt.client as paho

from edgert.mqtt.session.suspicion import Sent


class PahoClient(paho.Client):
    def limit_in_flight(self, most: int) -> None:
        """At most so many messages of ours are in flight from now on. paho's own setter refuses while there is a
        connection, and CONNACK is where the broker says how many it bears."""
        with self._out_message_mutex:
            self._max_inflight_messages = most

    def wait_before_next(self, seconds: float) -> None:
        """The wait before the next attempt to connect, instead of paho's own. While there is no connection."""
        with self._reconnect_delay_mutex:
            self._reconnect_min_delay = self._reconnect_max_delay = seconds  # type: ignore[assignment]
            self._reconnect_delay = None

    def unacknowledged(self) -> dict[int, Sent]:
        """Messages of ours by packet id, in the order of sending; paho sends them again on the next connection."""
        with self._out_message_mutex:
            messages = list(self._out_messages.items())
        return {mid: Sent(m.topic, len(m.topic) + len(m.payload)) for mid, m in messages}

    def forget(self, packet_ids: Collection[int]) -> None:
        """Messages that are not to be sent again. Between two connections, where the window is counted anew."""
        with self._out_message_mutex:
            for packet_id in packet_ids:
                self._out_messages.pop(packet_id, None)
