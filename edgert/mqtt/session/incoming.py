"""How the broker's messages at QoS 1 and 2 are answered. Which of them have come before is the application's to know:
only what it has committed tells that after its death (`gateway.ingest.inbox`)."""

from __future__ import annotations

from collections.abc import Iterable

from edgert.mqtt.packets import encode


def answers(packets: Iterable[tuple[int, int]]) -> bytes:
    """PUBACK or PUBREC for (packet id, QoS), in order of arrival; QoS 0 is passed over."""
    parts: list[bytes] = []
    ids: list[int] = []
    for packet_id, qos in packets:
        if qos == 1:
            ids.append(packet_id)
        elif qos == 2:
            parts += encode.pubacks(ids), encode.acknowledgement(encode.PUBREC, packet_id)
            ids.clear()
    parts.append(encode.pubacks(ids))
    return b"".join(parts)


def completions(packet_ids: Iterable[int]) -> bytes:
    """PUBCOMP for each; also for one whose PUBREC was sent before our restart."""
    return b"".join(encode.acknowledgement(encode.PUBCOMP, packet_id) for packet_id in packet_ids)
