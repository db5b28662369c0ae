"""Messages of gateways: partition and result, each checked against the topic."""

from __future__ import annotations

from edgert.central.collector.inbox import ResultMessage
from edgert.core.errors import PayloadError, show
from edgert.core.results.pieces import Piece
from edgert.core.results.results import Result, unpack_result_untrusted


def partition_of_topic(topic: str) -> str:
    """The partition that a result was published to: edgert/v1/<fleet>/@results/<partition>/<gateway>/<flow>."""
    return topic.rsplit("/", 3)[-3] if topic.count("/") >= 3 else ""


def read_untrusted(message: ResultMessage) -> Result | Piece:
    """The result, or piece of one, in a message. Raises `PayloadError`, also where its topic is another gateway's."""
    result = unpack_result_untrusted(message.payload)
    _check_topic(message.topic, result)
    return result


def _check_topic(topic: str, result: Result | Piece) -> None:
    """A broker lets a gateway publish under its own name only; so the topic says who speaks, not the payload."""
    if topic.split("/")[-2:] != [result.gateway, result.flow]:
        raise PayloadError(f"expected a result of {topic}, got one of {result.gateway}/{result.flow}: {show(result)}")
