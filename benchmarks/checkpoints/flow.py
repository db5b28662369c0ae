"""The flow whose checkpoints are measured, and messages for its keys.

A plant of 100 machines with so many channels each: a key is a machine and a channel, so that what grows is the state of
the window and nothing else. Readings are decimals, as sensors send them, and differ in every message.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any, Final

from edgert.mqtt.packets import encode
from edgert.mqtt.packets.decode import Decoder
from edgert.mqtt.packets.packets import V311, Packet, Publishes

FLOW: Final = "plant"
MACHINES: Final = 100
LONG_S: Final = 86_400.0
"""A window that does not end while it is measured: all its keys stay."""
MOST_PACKET_ID: Final = 65_535
READ: Final = 100
"""Messages to a read: what comes in the latency budget of 5 ms at 20,000/s."""


def document(window_s: float, interval_s: float = 5.0) -> dict[str, Any]:
    """Per machine and channel count, mean, variance, least and greatest of what it read, shipped."""
    return {
        "name": FLOW,
        "checkpoint": {"interval_s": interval_s},
        "operators": {
            "readings": {"type": "mqtt_source", "topic": "plant/{source}/reading", "codec": "json", "qos": 1},
            "valid": {"type": "filter", "input": "readings", "where": "value >= -40 and value <= 120"},
            "by_channel": {"type": "key_by", "input": "valid", "keys": ["source", "channel"]},
            "window": {
                "type": "tumbling_window",
                "input": "by_channel",
                "size_s": window_s,
                "aggregates": {
                    "n": "count()", "average": "mean(value)", "spread": "variance(value)", "low": "min(value)",
                    "high": "max(value)",
                },
            },
            "central": {"type": "ship", "input": "window"},
        },
    }  # fmt: skip


class Messages:
    """Messages in packed form. The same for the same seed."""

    def __init__(self, seed: int = 1) -> None:
        self._draw = random.Random(seed)
        self._packet_id = 0

    def packet(self, key: int, qos: int) -> bytes:
        """A reading of a key. Packet ids count up and begin anew, as a broker's do."""
        machine, channel = key % MACHINES, key // MACHINES
        payload = b'{"channel":"ch%04d","value":%.2f}' % (channel, self._draw.gauss(21.0, 4.0))
        packet_id = 0
        if qos:
            self._packet_id = packet_id = self._packet_id % MOST_PACKET_ID + 1
        return encode.publish(V311, f"plant/m{machine:03}/reading", payload, qos=qos, packet_id=packet_id)

    def reads(self, keys: Iterable[int], qos: int, size: int = READ) -> Iterator[bytes]:
        """A message for each key, in reads of so many."""
        packets: list[bytes] = []
        for key in keys:
            packets.append(self.packet(key, qos))
            if len(packets) == size:
                yield b"".join(packets)
                packets = []
        if packets:
            yield b"".join(packets)


def shuffled(keys: int, seed: int = 1) -> list[int]:
    """All keys, in an order that says nothing."""
    order = list(range(keys))
    random.Random(seed).shuffle(order)
    return order


def publishes(decoder: Decoder, read: bytes) -> Iterator[Publishes]:
    """What a read has in it."""
    out: list[Packet] = []
    decoder.feed_untrusted(read, out)
    for packet in out:
        if isinstance(packet, list):
            yield packet
