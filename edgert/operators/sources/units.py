"""Units that devices name themselves: `u` of a SenML record, `unit` beside `value` in a JSON object.

Rows hold values only, and units are for people, on a plot. So one payload of each topic is looked at, of the first
topics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from edgert.codecs.base import Captures, parse_untrusted
from edgert.core.batch import RawBatch
from edgert.core.errors import PayloadError

LOOK_S: Final = 1.0
FIRST_LOOK_S: Final = 0.05
"""Between two looks while new topics come."""
MOST_TOPICS: Final = 64
MOST_FIELDS: Final = 16
"""Fields of one topic, the first."""
MOST_CHARACTERS: Final = 16
"""A longer text is no unit."""
SCANNED: Final = 64
"""Messages of a batch among which a new topic is looked for."""


class Units:
    """Units by topic and field, of the first `MOST_TOPICS` topics."""

    def __init__(self, captures: Captures) -> None:
        self.next_look = -math.inf
        """When a batch is worth a look, monotonic seconds."""
        self._captures = captures
        self._known: dict[str, Mapping[str, str]] = {}
        """Topic → field → unit."""

    def look(self, batch: RawBatch) -> None:
        """Takes note of one message of the batch, of a new topic if there is one."""
        if len(self._known) >= MOST_TOPICS:
            self.next_look = math.inf
            return
        topics = batch.topics[:SCANNED]
        at = next((at for at, topic in enumerate(topics) if topic not in self._known), None)
        self.next_look = batch.arrival + (LOOK_S if at is None else FIRST_LOOK_S)
        if at is not None:
            self._known[topics[at]] = dict(units_untrusted(batch.payloads[at]))

    def found(self) -> list[list[Any]]:
        """[what the topic has captured, field → unit], of each topic with units; one entry without captures where the
        units of all topics are the same."""
        known = [(topic, units) for topic, units in list(self._known.items()) if units]
        if known and all(units == known[0][1] for _, units in known):
            return [[{}, known[0][1]]]
        return [[self._captures(topic), units] for topic, units in known]


def units_untrusted(payload: bytes) -> Iterator[tuple[str, str]]:
    """(field, unit) of a payload; none of what is neither SenML nor JSON."""
    try:
        document = parse_untrusted(payload)
    except PayloadError:
        return
    if isinstance(document, dict) and isinstance(document.get("unit"), str):
        yield from _fit("value", document["unit"])
    records = document.get("e", ()) if isinstance(document, dict) else document
    base = document.get("bu", "") if isinstance(document, dict) else ""
    for record in records[:MOST_FIELDS] if isinstance(records, list) else ():
        if isinstance(record, dict):
            base = record.get("bu", base)
            yield from _fit(record.get("n") or "value", record.get("u", base))


def _fit(field: object, unit: object) -> Iterator[tuple[str, str]]:
    if isinstance(field, str) and isinstance(unit, str) and 0 < len(unit) <= MOST_CHARACTERS:
        yield field[:64], unit
