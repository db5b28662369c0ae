"""Fields that a flow names and that no payload of its source ever had but as null: most often a word spelled wrong.

A decoder builds only the fields that are used, and fused code builds no rows, so a payload now and then is decoded once
more, with all its fields. A payload that holds the text of a missing name is always decoded; so a rare field is found.
"""

from __future__ import annotations

from typing import Any, Final

from edgert.codecs.base import Captures, Codec, parse_untrusted
from edgert.core.batch import RawBatch, Row
from edgert.core.errors import PayloadError, show
from edgert.operators.sources.units import Units

LOOK_S: Final = 1.0
"""A payload is decoded at most this often without a reason of its own."""
ENOUGH_S: Final = 20.0
"""A field counts as never seen after so long since the first row,"""
ENOUGH_LOOKS: Final = 10
"""and after so many decoded payloads."""
MOST_SEEN: Final = 64
"""Names that are kept of those seen."""
MOST_HITS: Final = 64
"""Payloads that hold the text of a missing name and not the field, until that text is looked for no more."""
SAMPLE_CHARACTERS: Final = 40


class UnseenFields:
    """Fields that a source has not seen yet. `missing` shrinks as fields are seen, until it is empty."""

    def __init__(self, named: frozenset[str], codec: Codec | None, captures: Captures) -> None:
        """`named`: fields that the flow reads by name from this source's rows. `codec` builds all fields."""
        self.missing = dict.fromkeys(sorted(named)) if codec else {}
        self.seen: dict[str, None] = {}
        self.came: dict[str, str] = {}
        """Fields of `missing` that a payload had, with null or, in JSON, a value that cannot be used, and what came."""
        self.units = Units(captures)
        self._codec, self._captures = codec, captures
        self._needles = {name: name.rpartition(".")[2].encode() for name in self.missing}
        self._began: float | None = None
        self._next_look = float("-inf")
        self._looks = self._hits = 0

    def look(self, batch: RawBatch) -> None:
        """Takes note of a batch of messages."""
        if not self.missing or not batch.payloads:
            return
        if batch.arrival >= self._next_look:
            self._next_look = batch.arrival + LOOK_S
            self._decode(batch, self._looks % len(batch.payloads))
        if self._hits < MOST_HITS:
            for name in tuple(self.missing):
                needle = self._needles[name]
                hit = next((at for at, payload in enumerate(batch.payloads) if needle in payload), None)
                if hit is not None:
                    self._hits += 1
                    if not self._decode(batch, hit) or name not in self.missing:
                        continue
                    if sample := _sample_untrusted(batch.payloads[hit], name):
                        self.came[name] = sample

    def _decode(self, batch: RawBatch, at: int) -> bool:
        """Takes note of the fields of a message; false if it is malformed."""
        assert self._codec is not None
        rows: list[Row] = []
        topic = batch.topics[at]
        try:
            self._codec.decode_untrusted(batch.payloads[at], self._captures(topic), batch.wall, rows, topic)
        except PayloadError:
            return False
        self._looks += 1
        if self._began is None and rows:
            self._began = batch.arrival
        for row in rows:
            for name, value in row.items():
                if value is not None:
                    self.missing.pop(name, None)
                    self.came.pop(name, None)
                elif name in self.missing:
                    self.came[name] = "null"
                if len(self.seen) < MOST_SEEN:
                    self.seen[name] = None
        return True

    def never_seen(self, now: float) -> list[str]:
        """The missing fields; none before there was enough to judge by. `now` is in seconds, as arrivals are."""
        if self._began is None or now - self._began < ENOUGH_S or self._looks < ENOUGH_LOOKS:
            return []
        return list(self.missing)


def _sample_untrusted(payload: bytes, name: str) -> str:
    """The value of this field in a JSON payload, or an array on the way to it, in short; empty if neither is there."""
    try:
        document = parse_untrusted(payload)
    except PayloadError:
        return ""
    for item in document if isinstance(document, list) else [document]:
        value: Any = item
        for key in [name] if isinstance(item, dict) and name in item else name.split("."):
            if isinstance(value, list):
                break
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            return show(value, SAMPLE_CHARACTERS)
    return ""
