"""Messages of gateways: partition and result, each checked against the topic."""

from __future__ import annotations

import logging
import sys
from dataclasses import fields
from typing import Any, Final

from edgert.central.collector.inbox import ResultMessage
from edgert.central.collector.known_gateway import GatewayCounters
from edgert.core.errors import PayloadError, show
from edgert.core.ids import FLOW_NAME, GATEWAY_NAME
from edgert.core.log_sampling import is_told
from edgert.core.results.pieces import Piece
from edgert.core.results.result_schema import Schema
from edgert.core.results.results import Numbered, Result, results_topic, unpack_result_untrusted

log = logging.getLogger("edgert.central.collector")
MOST_TOPIC: Final = 256
"""Characters of a topic that are told or kept. A results topic has fewer."""
_CONTAINERS: Final = (list, tuple, dict, Schema)


def partition_of_topic(topic: str) -> str:
    """The partition that a result was published to: edgert/v1/<fleet>/@results/<partition>/<gateway>/<flow>."""
    return topic.rsplit("/", 3)[-3] if topic.count("/") >= 3 else ""


def gateway_of_topic(topic: str) -> str:
    """The gateway that a result was published by: edgert/v1/<fleet>/@results/<partition>/<gateway>/<flow>. Brokers let
    a gateway publish under its own name only."""
    return topic.rsplit("/", 2)[-2] if topic.count("/") >= 2 else ""


class ResultTopics:
    """The topics on which gateways of a fleet publish results. A subscription takes more: a broker's rules say nothing
    of the partition and the flow, so these may be 60 kB long."""

    def __init__(self, fleet: str, counters: GatewayCounters) -> None:
        self._fleet, self._counters = fleet, counters

    def has_untrusted(self, topic: str) -> bool:
        """True for a topic of results; another one is counted and said. To be called by one thread."""
        gateway, flow = gateway_of_topic(topic), topic.rpartition("/")[2]
        legal = GATEWAY_NAME.fullmatch(gateway) and FLOW_NAME.fullmatch(flow)
        if legal and topic == results_topic(self._fleet, gateway, flow):
            return True
        self._counters.bad_topics += 1
        if is_told(self._counters.bad_topics):
            log.warning(
                "a message is refused: expected a topic edgert/v1/%s/@results/<partition>/<gateway>/<flow>, got %s "
                "(%d so far)", self._fleet, show(topic, MOST_TOPIC), self._counters.bad_topics,
            )  # fmt: skip
        return False


def read_untrusted(message: ResultMessage) -> Result | Piece:
    """The result, or piece of one, in a message. Raises `PayloadError`, also where its topic is another gateway's."""
    result = unpack_result_untrusted(message.payload)
    _check_topic(message.topic, result)
    return result


def memory_of(result: Numbered) -> int:
    """Bytes of memory that a result takes: a row of four bytes on its way is some hundred as objects of Python's."""
    containers: list[Any] = [result]
    total = sys.getsizeof(result)
    while containers:
        container = containers.pop()
        parts = container
        if isinstance(container, dict):
            parts = [*container, *container.values()]
        elif not isinstance(container, list | tuple):
            parts = [getattr(container, field.name) for field in fields(container)]
        total += sum(map(sys.getsizeof, parts))
        containers += [part for part in parts if isinstance(part, _CONTAINERS)]
    return total


def _check_topic(topic: str, result: Result | Piece) -> None:
    """A broker lets a gateway publish under its own name only; so the topic says who speaks, not the payload."""
    if topic.split("/")[-2:] != [result.gateway, result.flow]:
        raise PayloadError(
            f"expected a result of {show(topic, MOST_TOPIC)}, got one of {result.gateway}/{result.flow}: {show(result)}"
        )
