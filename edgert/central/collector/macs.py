"""MACs at the collector: a result counts only with one by its gateway's key, and acknowledgements carry one.

Results are checked on the network's thread, before they wait for the writer: what is refused takes no room and no turn
of the gateway whose name it claims.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from edgert.central.collector.known_gateway import GatewayCounters
from edgert.central.collector.messages import gateway_of_topic
from edgert.core.clock import Clock
from edgert.core.errors import PayloadError, show
from edgert.core.log_sampling import LogSampling
from edgert.core.results.macs import MAC_BYTES, gateway_key, is_authentic, split_untrusted, with_macs
from edgert.core.results.results import acks_topic

log = logging.getLogger("edgert.central.collector.macs")


class ResultMacs:
    """`keys`: central keys; any of them is good for a result. Without them MACs are not checked."""

    def __init__(
        self, fleet: str, keys: Sequence[bytes], accept_unsigned: bool, counters: GatewayCounters, clock: Clock
    ) -> None:
        self._fleet = fleet
        self._keys = keys
        self._accept_unsigned = accept_unsigned
        self._counters = counters
        self._clock = clock
        self._sampling = LogSampling()

    def payload_untrusted(self, message: bytes, topic: str) -> bytes | None:
        """The payload of a result that came on `topic`; None for one that is refused: that is counted and said.

        To be called by one thread.
        """
        if not self._keys:
            return self._unchecked(message, topic)
        try:
            return self._checked(message, topic)
        except PayloadError as error:
            self._counters.not_authentic += 1
            self._counters.newest_not_authentic = f"{show(topic)}: {error}"
            self._say(topic, f"a result is refused: {error}")
            return None

    def _unchecked(self, message: bytes, topic: str) -> bytes:
        try:
            macs, payload = split_untrusted(message)
        except PayloadError:
            return message  # no result, as the collector says
        if macs:
            self._counters.unchecked += 1
            self._say(topic, "a MAC is not checked: this collector has no collector.mac_key_file")
        return payload

    def _checked(self, message: bytes, topic: str) -> bytes:
        macs, payload = split_untrusted(message)
        if macs and is_authentic(macs, payload, topic, self._keys_of(gateway_of_topic(topic))):
            return payload
        if not macs:
            self._counters.unsigned += 1
            if self._accept_unsigned:
                return payload
        raise PayloadError(f"expected a MAC by the gateway's key, got {'another' if macs else 'none'}")

    @property
    def overhead(self) -> int:
        """Bytes that an acknowledgement is longer by."""
        return 2 + MAC_BYTES * len(self._keys) if self._keys else 0

    def signed(self, payload: bytes, gateway: str) -> bytes:
        """An acknowledgement as it is sent to a gateway: with a MAC by each key that the gateway may have."""
        if not self._keys:
            return payload
        return with_macs(payload, acks_topic(self._fleet, gateway), self._keys_of(gateway))

    def _keys_of(self, gateway: str) -> list[bytes]:
        return [gateway_key(key, self._fleet, gateway) for key in self._keys]

    def _say(self, topic: str, text: str) -> None:
        """The first of a kind and gateway, then their number once a minute."""
        now = self._clock.monotonic()
        kind = f"{gateway_of_topic(topic)}: {text}"
        if first := self._sampling.note(kind, 1, f"gateway {kind} ({show(topic)})", now):
            log.warning("%s", first)
        for again, count, seconds, newest in self._sampling.due(now):
            log.warning("gateway %s: %d more in %.0f s; the newest: %s", again, count, seconds, newest)
