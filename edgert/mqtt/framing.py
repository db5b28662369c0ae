"""The hot path of ingest: frames of common PUBLISH packets in one read's buffer. `decode` does all the rest.

Common means: QoS 0 or 1, neither DUP nor RETAIN, shorter than 16 kB, a topic that was seen before, and in version 5 no
property but a small subscription identifier. The loops stop at the first packet that is anything else, or that is not
complete, and leave it to the caller. They are longer than our functions usually are, and one per version, since a
function call or a needless comparison per message would be seen in the benchmark.
"""

from __future__ import annotations

from edgert.mqtt.packets import Publish, Publishes, PublishRun

Topics = dict[bytes, str]
"""Topics seen before, by their raw form with its two-byte length (so that the length need not be decoded first)."""

LARGEST_FRAME = 16_387
"""The loops frame nothing larger than this (two bytes of remaining length)."""

_ONE_ID: tuple[tuple[int, ...], ...] = ((), *((i,) for i in range(1, 128)))
"""Shared tuples for the subscription identifiers that fit one byte; at 0 that for none."""


def publishes_v311(data: bytes, at: int, end: int, topics: Topics, messages: Publishes) -> int:
    """Append the common publishes from `at` on to `messages`; returns the place behind the last of them."""
    append, publish = messages.append, Publish
    run: PublishRun | None = None
    near_end = end - 4  # so that no index below can leave the buffer
    try:
        while at < near_end:
            first = data[at]
            if first != 0x30 and first != 0x32:
                break
            length = data[at + 1]
            if length < 128:
                body = at + 2
            else:
                high = data[at + 2]
                if high >= 128:
                    break
                length += (high << 7) - 128
                body = at + 3
            stop = body + length
            if stop > end:
                break
            # A topic longer than 255 bytes is never found: its first byte tells, and it is part of the key.
            place = body + 2 + data[body + 1]
            topic = topics[data[body:place]]
            if first == 0x30:
                if place > stop:
                    break
                if run is None:
                    run = PublishRun([], [])
                    append(run)
                    add_topic, add_payload = run.topics.append, run.payloads.append
                add_topic(topic)
                add_payload(data[place:stop])
            else:
                if place + 2 > stop:
                    break
                packet_id = data[place] << 8 | data[place + 1]
                if not packet_id:
                    break
                run = None
                append(publish(topic, data[place + 2 : stop], 1, False, False, packet_id))
            at = stop
    except KeyError:
        pass
    return at


def publishes_v5(data: bytes, at: int, end: int, topics: Topics, messages: Publishes) -> int:
    """As `publishes_v311`, with the two commonest property sections: none, and one subscription identifier."""
    append, publish, one_id = messages.append, Publish, _ONE_ID
    of = -1  # the subscription identifier of the run that is under way (0: none); -1 when there is no such run
    near_end = end - 4
    try:
        while at < near_end:
            first = data[at]
            if first != 0x30 and first != 0x32:
                break
            length = data[at + 1]
            if length < 128:
                body = at + 2
            else:
                high = data[at + 2]
                if high >= 128:
                    break
                length += (high << 7) - 128
                body = at + 3
            stop = body + length
            if stop > end:
                break
            place = body + 2 + data[body + 1]
            topic = topics[data[body:place]]
            if place + 5 > stop:  # packet id and one subscription identifier: no index below can leave the packet
                break
            packet_id = 0
            if first == 0x32:
                packet_id = data[place] << 8 | data[place + 1]
                if not packet_id:
                    break
                place += 2
            size = data[place]
            if size == 2:  # two bytes that begin with 0x0B can only be one small subscription identifier
                number = data[place + 2]
                if data[place + 1] != 0x0B or not 0 < number < 128:
                    break
                place += 3
            elif size:
                break
            else:
                number = 0
                place += 1
            if packet_id:
                of = -1
                append(publish(topic, data[place:stop], 1, False, False, packet_id, one_id[number]))
            else:
                if number != of:
                    of = number
                    run = PublishRun([], [], one_id[number])
                    append(run)
                    add_topic, add_payload = run.topics.append, run.payloads.append
                add_topic(topic)
                add_payload(data[place:stop])
            at = stop
    except KeyError:
        pass
    return at
