"""The hostile peer, and what is seen of the honest gateway's results beside it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import paho.mqtt.client as paho
import psutil

from edgert.core.errors import PayloadError
from edgert.core.results.macs import split_untrusted
from edgert.core.results.results import (
    RowsBatch,
    unpack_acknowledgement_untrusted,
    unpack_result_untrusted,
)
from tests.faults.circumstances import HopName
from tests.integration.rig import Process
from tests.proxy import Hop, is_publish, publish_of

HONEST: Final = "g1"
WITHIN_S: Final = 2.0
"""Seconds of the collector's CPU time in which it acknowledges an honest result: it does not depend on what else the
machine does."""
Stream = tuple[str, int, int]
Message = tuple[str, bytes]
"""(topic, payload)."""


@dataclass(slots=True)
class Peer:
    """The peer, and what is seen meanwhile of the honest gateway's results on their way."""

    sent: dict[Stream, int] = field(default_factory=dict)
    """The newest number of each stream that left the honest gateway."""
    floods: int = 0
    slowest_cpu_s: float = 0.0
    """The longest time from a result's leaving until its acknowledgement, in seconds of the collector's CPU."""
    acknowledged: int = 0
    """Results of which that was seen."""
    _waiting: dict[tuple[Stream, int], tuple[int, float]] = field(default_factory=dict)
    """(stream, number) → (process of the collector, its CPU time when the result left)."""
    _clients: list[paho.Client] = field(default_factory=list)

    def watch(self, hops: Mapping[HopName, Hop], has_macs: bool, collector: Process) -> None:
        """The honest gateway's results where they leave it, and acknowledgements where they leave the collector: none
        of them is forged."""
        hops["uplink"].watch("up", lambda packet: self._left(packet, has_macs, collector))
        hops["collector"].watch("up", lambda packet: self._acknowledged(packet, has_macs, collector))

    def send(self, port: int, messages: list[Message]) -> None:
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)  # type: ignore[attr-defined]
        client.max_inflight_messages_set(1_000)
        client.connect("127.0.0.1", port)
        client.loop_start()
        self._clients.append(client)
        for topic, payload in messages:
            client.publish(topic, payload, qos=1)
        self.floods += 1

    def close(self) -> None:
        for client in self._clients:
            client.disconnect()
            client.loop_stop()

    def problems(self) -> list[str]:
        """Of a seed that is over."""
        if not self.floods or not self.acknowledged:
            return [f"{self.floods} floods and {self.acknowledged} acknowledgements: the seed shows nothing"]
        if self.slowest_cpu_s > WITHIN_S:
            return [f"an acknowledgement came after {self.slowest_cpu_s:.2f} s of the collector's CPU time"]
        return []

    # -- on the loop of the hops

    def _left(self, packet: bytes, has_macs: bool, collector: Process) -> None:
        if not is_publish(packet) or b"/@results/" not in packet[:100]:
            return
        result = unpack_result_untrusted(_payload(packet, has_macs))
        if isinstance(result, RowsBatch) and result.gateway == HONEST:
            stream = result.flow, result.epoch, result.stream
            self.sent[stream] = max(result.sequence, self.sent.get(stream, 0))
            self._waiting[stream, result.sequence] = _cpu(collector)

    def _acknowledged(self, packet: bytes, has_macs: bool, collector: Process) -> None:
        if not is_publish(packet) or f"/@acks/{HONEST}".encode() not in packet[:100]:
            return
        with suppress(PayloadError):
            found = unpack_acknowledgement_untrusted(_payload(packet, has_macs))
            process, cpu_s = _cpu(collector)
            for stream, number in [w for w in self._waiting if w[1] <= found.acks.get(w[0], 0)]:
                of, since = self._waiting.pop((stream, number))
                if of == process:
                    self.slowest_cpu_s = max(self.slowest_cpu_s, cpu_s - since)
                    self.acknowledged += 1


def _payload(packet: bytes, has_macs: bool) -> bytes:
    payload = publish_of(packet).payload
    return split_untrusted(payload)[1] if has_macs else payload


def _cpu(collector: Process) -> tuple[int, float]:
    """(process of the collector, its CPU time in s); (0, 0.0) while there is none."""
    process: Any = collector.process
    with suppress(psutil.Error):
        if process is not None:
            times = psutil.Process(process.pid).cpu_times()
            return process.pid, times.user + times.system
    return 0, 0.0
