"""Messages one by one, and in runs as the fast way of the decoder gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from edgert.mqtt.packets.packets import Publish, Publishes, PublishRun


def singly(messages: Iterable[Publish | PublishRun]) -> Iterator[Publish]:
    """Each message as one object."""
    for message in messages:
        if isinstance(message, PublishRun):
            for topic, payload in zip(message.topics, message.payloads, strict=True):
                yield Publish(topic, payload, subscription_ids=message.subscription_ids)
        else:
            yield message


def in_runs(messages: Sequence[Publish]) -> Publishes:
    """The same messages; those that a run can hold are in one with their neighbours."""
    out: Publishes = []
    for message in messages:
        if message.qos or message.retain:
            out.append(message)
            continue
        last = out[-1] if out else None
        if not isinstance(last, PublishRun) or last.subscription_ids != message.subscription_ids:
            last = PublishRun([], [], message.subscription_ids)
            out.append(last)
        last.topics.append(message.topic)
        last.payloads.append(message.payload)
    return out
