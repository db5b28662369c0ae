"""The hot path of ingest: frames of common PUBLISH packets in one read's buffer. `decode` does all the rest.

Common means: QoS 0 or 1, neither DUP nor RETAIN, shorter than 16 kB, a topic that was seen before, and in version 5
the same properties with it as then, and those none but subscription identifiers. The loops stop at the first packet
that is anything else, or that is not complete, and leave it to the caller. They are longer than our functions usually
are, and one per version, since a function call or a needless comparison per message would be seen in the benchmark.
"""

from __future__ import annotations

from edgert.mqtt.packets.packets import Publish, Publishes, PublishRun

Topics = dict[bytes, str]
"""Topics seen before, by their raw form with its two-byte length (so that the length need not be decoded first)."""

LARGEST_FRAME = 16_387
"""The loops frame nothing larger than this (two bytes of remaining length)."""

Heads = dict[bytes, tuple[str, tuple[int, ...]]]
"""Topic and subscription identifiers by their raw form: the topic with its length, then the property section with its
length, which holds nothing else. Equal identifiers are one and the same tuple."""


def publishes_v311(data: bytes, at: int, end: int, topics: Topics, messages: Publishes) -> int:
    """Append the common publishes from `at` on to `messages`; returns the offset behind the last of them."""
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
            topic_end = body + 2 + data[body + 1]
            topic = topics[data[body:topic_end]]
            if first == 0x30:
                if topic_end > stop:
                    break
                if run is None:
                    run = PublishRun([], [])
                    append(run)
                    add_topic, add_payload = run.topics.append, run.payloads.append
                add_topic(topic)
                add_payload(data[topic_end:stop])
            else:
                if topic_end + 2 > stop:
                    break
                packet_id = data[topic_end] << 8 | data[topic_end + 1]
                if not packet_id:
                    break
                run = None
                append(publish(topic, data[topic_end + 2 : stop], 1, False, False, packet_id))
            at = stop
    except KeyError:
        pass
    return at


def publishes_v5(data: bytes, at: int, end: int, heads: Heads, messages: Publishes) -> int:
    """Works as `publishes_v311`, with the property sections that were seen before with their topic."""
    append, publish = messages.append, Publish
    of: tuple[int, ...] | None = None  # the subscription identifiers of the run that is under way
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
            topic_end = body + 2 + data[body + 1]
            if topic_end + 2 >= stop:  # packet id and length of the properties: no index below can leave the packet
                break
            if first == 0x30:
                behind = topic_end + 1 + data[topic_end]
                topic, ids = heads[data[body:behind]]
                if behind > stop:
                    break
                if ids is not of:
                    of = ids
                    run = PublishRun([], [], ids)
                    append(run)
                    add_topic, add_payload = run.topics.append, run.payloads.append
                add_topic(topic)
                add_payload(data[behind:stop])
            else:
                of = None
                packet_id = data[topic_end] << 8 | data[topic_end + 1]
                behind = topic_end + 3 + data[topic_end + 2]
                topic, ids = heads[data[body:topic_end] + data[topic_end + 2 : behind]]
                if behind > stop or not packet_id:
                    break
                append(publish(topic, data[behind:stop], 1, False, False, packet_id, ids))
            at = stop
    except KeyError:
        pass
    return at
